package table

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"tiney/telemetry"
)

// developmentStorage is what UseDevelopmentStorage=true stands for, which the SDK does not know:
// the storage emulator's account, the same on every machine. Its key is public.
const developmentStorage = "AccountName=devstoreaccount1;" +
	"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;" +
	"BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;TableEndpoint=http://127.0.0.1:10002/devstoreaccount1"

// Connection is the address of a storage account and the credential for it. ParseConnection returns
// one.
type Connection struct {
	tables, blobs string // service URLs without a trailing slash; "" if the settings name none
	tablesCopy    string // that of the tables' copy in the second region, if the settings name it
	account, key  string // shared key
	sas           string // shared access signature, without "?"
	identity      azcore.TokenCredential
}

// The services of a storage account that a connection can be for.
const (
	TableService = "table"
	BlobService  = "blob"
)

// ParseConnection reads the connection for a service from the first of the named settings that is
// set, in either form that Azure Functions knows: NAME is a connection string, or
// NAME__accountName, NAME__tableServiceUri and NAME__blobServiceUri name the account, with
// NAME__credential=managedidentity and NAME__clientId for the identity. NAME takes precedence over
// NAME__…. Its errors name settings and never quote their values.
func ParseConnection(getenv func(string) string, service string, names ...string) (Connection,
	error) {
	c, name, err := parseConnection(getenv, names)
	if err == nil && (service == TableService && c.tables == "" || service == BlobService &&
		c.blobs == "") {
		err = fmt.Errorf("%s names no account, and no %s service", name, service)
	}
	return c, err
}

func parseConnection(getenv func(string) string, names []string) (c Connection, name string,
	err error) {
	for _, name = range names {
		if s := getenv(name); s != "" {
			if c, err = parseConnectionString(s); err != nil {
				err = fmt.Errorf("%s %w", name, err)
			}
			return c, name, err
		}
		for _, part := range []string{"accountName", "tableServiceUri", "blobServiceUri"} {
			if getenv(name+"__"+part) != "" {
				c, err = parseIdentity(getenv, name)
				return c, name, err
			}
		}
	}
	return Connection{}, name, fmt.Errorf(
		"%s is required: a storage connection string, or UseDevelopmentStorage=true for Azurite",
		name)
}

func parseConnectionString(s string) (Connection, error) {
	values := map[string]string{}
	for part := range strings.SplitSeq(s, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return Connection{}, errors.New(
				"is not a connection string: it must be Key=Value pairs with semicolons between " +
					"them")
		}
		values[key] = value
	}
	if strings.EqualFold(values["UseDevelopmentStorage"], "true") {
		return parseConnectionString(developmentStorage)
	}
	endpoint := func(service string) (string, error) {
		given, account := values[strings.ToUpper(service[:1])+service[1:]+"Endpoint"],
			values["AccountName"]
		if given == "" && account == "" {
			return "", nil
		}
		if given == "" {
			scheme, suffix := values["DefaultEndpointsProtocol"], values["EndpointSuffix"]
			if scheme == "" {
				scheme = "https"
			}
			if suffix == "" {
				suffix = "core.windows.net"
			}
			given = fmt.Sprintf("%s://%s.%s.%s", scheme, account, service, suffix)
		}
		return serviceURL(given, service)
	}
	c := Connection{account: values["AccountName"], key: values["AccountKey"],
		sas: strings.TrimPrefix(values["SharedAccessSignature"], "?")}
	var err error
	if c.tables, err = endpoint("table"); err != nil {
		return Connection{}, err
	}
	if c.blobs, err = endpoint("blob"); err != nil {
		return Connection{}, err
	}
	if given := values["TableSecondaryEndpoint"]; given != "" {
		if c.tablesCopy, err = serviceURL(given, "secondary table"); err != nil {
			return Connection{}, err
		}
	}
	switch {
	case c.key != "" && c.account == "":
		return Connection{}, errors.New("has an AccountKey but no AccountName")
	case c.key == "" && c.sas == "":
		return Connection{}, errors.New(
			"is not complete: it needs AccountName and AccountKey, or a SharedAccessSignature")
	}
	if _, err := base64.StdEncoding.DecodeString(c.key); err != nil {
		return Connection{}, errors.New("has an AccountKey that is not valid base64")
	}
	return c, nil
}

// serviceURL returns the URL of a service without a trailing slash, or an error that does not quote
// it.
func serviceURL(given, service string) (string, error) {
	if u, err := url.Parse(given); err != nil || u.Scheme != "http" && u.Scheme != "https" ||
		u.Host == "" {
		return "", fmt.Errorf("gives no valid URL for its %s service", service)
	}
	return strings.TrimRight(given, "/"), nil
}

func parseIdentity(getenv func(string) string, name string) (Connection, error) {
	setting := func(part string) string { return getenv(name + "__" + part) }
	var c Connection
	if account := setting("accountName"); account != "" {
		c.tables = fmt.Sprintf("https://%s.table.core.windows.net", account)
		c.blobs = fmt.Sprintf("https://%s.blob.core.windows.net", account)
	}
	for part, service := range map[string]*string{"tableServiceUri": &c.tables,
		"blobServiceUri": &c.blobs} {
		if uri := setting(part); uri != "" {
			*service = strings.TrimRight(uri, "/")
		}
		// A token is a secret: the SDK would refuse to send it over plain http, at the first call.
		if u, err := url.Parse(*service); *service != "" && (err != nil || u.Scheme != "https" ||
			u.Host == "") {
			return Connection{}, fmt.Errorf("%s__%s must be an https URL", name, part)
		}
	}
	credential, clientID := setting("credential"), setting("clientId")
	var err error
	switch {
	case strings.EqualFold(credential, "managedidentity"):
		var options azidentity.ManagedIdentityCredentialOptions
		if clientID != "" {
			options.ID = azidentity.ClientID(clientID)
		}
		c.identity, err = azidentity.NewManagedIdentityCredential(&options)
	case credential != "":
		return Connection{}, fmt.Errorf(
			"%s__credential must be managedidentity, or left out for the default credential", name)
	case clientID != "":
		return Connection{}, fmt.Errorf("%s__clientId needs %s__credential=managedidentity", name,
			name)
	default:
		c.identity, err = azidentity.NewDefaultAzureCredential(nil)
	}
	if err != nil {
		return Connection{}, fmt.Errorf("%s__credential: %w", name, err)
	}
	return c, nil
}

// Secondary returns the connection to the tables' copy in the second region of the account, which
// where gives as its URI, or "true" for the one that Azure names after the account. Its errors
// quote nothing.
func (c Connection) Secondary(where string) (Connection, error) {
	const suffix = "-secondary"
	switch {
	case strings.EqualFold(where, "true") && c.tablesCopy != "":
		c.tables = c.tablesCopy
	case strings.EqualFold(where, "true"):
		u, err := url.Parse(c.tables)
		if err != nil {
			return Connection{}, errors.New("needs a URI, since that of the tables is not valid")
		}
		// the domain may begin with a zone, as in z12.table.core.windows.net
		account, domain, _ := strings.Cut(u.Host, ".")
		// an emulator, or a host name of one's own
		if !strings.Contains("."+domain, ".table.") || c.account != "" && account != c.account {
			return Connection{}, errors.New(
				"must be a URI for this account: only for one at ….table.core.windows.net, or in " +
					"another cloud of Azure, does true say which it is")
		}
		u.Host = account + suffix + "." + domain
		c.tables = u.String()
	default:
		u, err := url.Parse(where)
		if err != nil || u.Host == "" || u.Scheme != "https" &&
			(u.Scheme != "http" || c.identity != nil) || u.RawQuery != "" {
			return Connection{}, errors.New(
				"must be true, or the https URI of the tables' copy, without a query")
		}
		c.tables = strings.TrimRight(where, "/")
	}
	return c, nil
}

// BlobContainer returns a container of blobs of the account. It makes no call.
func (c Connection) BlobContainer(name string, sender *telemetry.Sender) (*container.Client,
	error) {
	options := &container.ClientOptions{ClientOptions: ClientOptions(telemetry.TypeBlob, sender)}
	u := c.blobs + "/" + name
	switch {
	case c.identity != nil:
		return container.NewClient(u, c.identity, options)
	case c.key != "":
		key, err := azblob.NewSharedKeyCredential(c.account, c.key)
		if err != nil {
			return nil, err
		}
		return container.NewClientWithSharedKeyCredential(u, key, options)
	default:
		return container.NewClientWithNoCredential(u+"?"+c.sas, options)
	}
}
