package table

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"tiney/internal/telemetry"
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
// NAME__credential=managedidentity and NAME__clientId or NAME__managedIdentityResourceId for the
// identity. NAME takes precedence over NAME__…. Its errors name settings and never quote their
// values. getenv gives the values. The names of this process's environment show
// which are misspelled.
func ParseConnection(getenv func(string) string, service string, names ...string) (Connection,
	error) {
	c, name, err := parseConnection(getenv, names)
	if err == nil && (service == TableService && c.tables == "" || service == BlobService &&
		c.blobs == "") {
		err = fmt.Errorf("%s names no account, and no %s service", name, service)
	}
	return c, err
}

// identityNames are what can follow NAME__. The first ones name the account: as many as
// accountNames.
var identityNames = []string{"accountName", "tableServiceUri", "blobServiceUri", "credential",
	"clientId", "managedIdentityResourceId"}

const accountNames = 3

// hostsForm matches what else can follow NAME__. It is the Functions host's own, or means nothing
// here.
var hostsForm = regexp.MustCompile(`(?i)^(?:queueServiceUri|tenantId|(?:retry|diagnostics)__.*)$`)

func parseConnection(getenv func(string) string, names []string) (c Connection, name string,
	err error) {
	for _, name = range names {
		if s := getenv(name); s != "" {
			if c, err = parseConnectionString(s); err != nil {
				err = fmt.Errorf("%s %w", name, err)
			}
			return c, name, err
		}
		if err := misspelled(getenv, name); err != nil {
			return c, name, err
		}
		for i, part := range identityNames {
			if getenv(name+"__"+part) != "" {
				if i >= accountNames {
					return c, name, fmt.Errorf("%s__%s needs %[1]s__accountName, or "+
						"%[1]s__tableServiceUri and %[1]s__blobServiceUri", name, part)
				}
				c, err = parseIdentity(getenv, name)
				return c, name, err
			}
		}
	}
	return Connection{}, name, fmt.Errorf(
		"%s is required: a storage connection string, or UseDevelopmentStorage=true for Azurite",
		name)
}

// misspelled returns an error if the environment has a name that begins with name__ and is neither
// known here nor the Functions host's own, or is another spelling of a known one. It would have no
// effect, and the service would call storage as somebody else.
func misspelled(getenv func(string) string, name string) error {
	var wrong []string
	for _, entry := range os.Environ() {
		is, value, _ := strings.Cut(entry, "=")
		if len(is) <= len(name) || !strings.EqualFold(is[:len(name)], name) || value == "" {
			continue
		}
		part := strings.TrimLeft(is[len(name):], "_:.-")
		i := slices.IndexFunc(identityNames, func(known string) bool {
			return strings.EqualFold(known, part)
		})
		ours := i >= 0 && part != is[len(name):] ||
			strings.HasPrefix(is[len(name):], "__") && !hostsForm.MatchString(part)
		if ours && (i < 0 || getenv(name+"__"+identityNames[i]) != value) {
			wrong = append(wrong, is)
		}
	}
	if wrong == nil {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("%s has no effect: the names that work are %s__%s, spelled so",
		strings.Join(wrong, ", "), name, strings.Join(identityNames, ", __"))
}

// connectionKeys are what a connection string can have. Those that no other line here names are of
// services that are not used.
var connectionKeys = []string{"AccountName", "AccountKey", "SharedAccessSignature",
	"DefaultEndpointsProtocol", "EndpointSuffix", "BlobEndpoint", "TableEndpoint",
	"TableSecondaryEndpoint", "UseDevelopmentStorage", "DevelopmentStorageProxyUri",
	"BlobSecondaryEndpoint", "QueueEndpoint", "QueueSecondaryEndpoint", "FileEndpoint",
	"FileSecondaryEndpoint", "DfsEndpoint", "DfsSecondaryEndpoint", "WebEndpoint",
	"WebSecondaryEndpoint"}

// These match the name of an account, the end of hosts of a cloud, and what may be a mistyped key:
// not a secret that was pasted alone.
var (
	accountForm = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	suffixForm  = regexp.MustCompile(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.?(:[0-9]+)?$`)
	mistyped    = regexp.MustCompile(`^[A-Za-z]{1,30}$`)
)

// connectionPairs returns the pairs of a connection string by their keys. As in Azure's libraries,
// the keys may be in any case. White space around keys, values and the whole is left out, as are
// quotes around the whole.
func connectionPairs(s string) (map[string]string, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "@Microsoft.KeyVault(") {
		return nil, errors.New("is a reference to Key Vault that Azure has not resolved: look at " +
			"the site's identity and its rights")
	}
	for _, quote := range [][2]string{{`"`, `"`}, {"'", "'"}, {"“", "”"}} {
		if inner, ok := strings.CutPrefix(s, quote[0]); ok && strings.HasSuffix(inner, quote[1]) {
			s = strings.TrimSuffix(inner, quote[1])
		}
	}
	values, n := map[string]string{}, 0
	for part := range strings.SplitSeq(s, ";") {
		n++
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		i := slices.IndexFunc(connectionKeys, func(known string) bool {
			return strings.EqualFold(known, key)
		})
		switch {
		case !ok:
			return nil, fmt.Errorf("is not a connection string: it must be Key=Value pairs with "+
				"semicolons between them, and part %d is none", n)
		case i < 0 && mistyped.MatchString(key):
			return nil, fmt.Errorf("has the key %q, which no connection string has", key)
		case i < 0:
			return nil, fmt.Errorf("is not a connection string: part %d has no known key, such "+
				"as AccountName", n)
		}
		if _, twice := values[connectionKeys[i]]; twice {
			return nil, fmt.Errorf("has %s twice", connectionKeys[i])
		}
		values[connectionKeys[i]] = strings.TrimSpace(value)
	}
	return values, nil
}

func parseConnectionString(s string) (Connection, error) {
	wrong := func(what string) (Connection, error) { return Connection{}, errors.New(what) }
	values, err := connectionPairs(s)
	if err != nil {
		return Connection{}, err
	}
	emulator, proxy := values["UseDevelopmentStorage"], values["DevelopmentStorageProxyUri"]
	switch isOn := strings.EqualFold(emulator, "true"); {
	case !isOn && emulator != "" && !strings.EqualFold(emulator, "false"):
		return wrong("has a UseDevelopmentStorage that is not true")
	case !isOn && proxy != "":
		return wrong("has a DevelopmentStorageProxyUri without UseDevelopmentStorage=true")
	case isOn && (len(values) > 2 || len(values) > 1 && proxy == ""):
		return wrong("has UseDevelopmentStorage=true, beside which only " +
			"DevelopmentStorageProxyUri may stand")
	case isOn:
		values, _ = connectionPairs(developmentStorage)
		if proxy == "" {
			break
		}
		u, err := url.Parse(proxy)
		if err != nil || !isHTTP(u) || u.Hostname() == "" {
			return wrong("has a DevelopmentStorageProxyUri that is no URL such as http://azurite")
		}
		for key, port := range map[string]string{"BlobEndpoint": "10000",
			"TableEndpoint": "10002"} {
			values[key] = u.Scheme + "://" + net.JoinHostPort(u.Hostname(), port) +
				"/devstoreaccount1"
		}
	}
	c := Connection{account: values["AccountName"], key: values["AccountKey"],
		sas: strings.TrimPrefix(values["SharedAccessSignature"], "?")}
	scheme := cmp.Or(strings.ToLower(values["DefaultEndpointsProtocol"]), "https")
	suffix := cmp.Or(values["EndpointSuffix"], "core.windows.net")
	switch {
	case scheme != "http" && scheme != "https":
		return wrong("has a DefaultEndpointsProtocol that is not https, or http")
	case !suffixForm.MatchString(suffix):
		return wrong("has an EndpointSuffix that is no host name such as core.windows.net")
	case c.account != "" && !accountForm.MatchString(c.account):
		return wrong("has an AccountName with other signs than letters and digits")
	}
	for i, endpoint := range []*string{&c.tables, &c.blobs, &c.tablesCopy} {
		key := []string{"TableEndpoint", "BlobEndpoint", "TableSecondaryEndpoint"}[i]
		given := values[key]
		if given == "" && c.account != "" && endpoint != &c.tablesCopy {
			service := strings.ToLower(strings.TrimSuffix(key, "Endpoint"))
			given = fmt.Sprintf("%s://%s.%s.%s", scheme, c.account, service, suffix)
		}
		*endpoint = strings.TrimRight(given, "/")
		if u, err := url.Parse(given); given != "" && (err != nil || !isHTTP(u) || u.Host == "") {
			return wrong("has a " + key + " that is no http or https URL")
		}
	}
	switch _, err := base64.StdEncoding.DecodeString(c.key); {
	case c.key != "" && c.account == "":
		return wrong("has an AccountKey but no AccountName")
	case c.key == "" && c.sas == "":
		return wrong("is not complete: it lacks an AccountKey, or a SharedAccessSignature")
	case err != nil:
		return wrong("has an AccountKey that is not valid base64")
	}
	return c, nil
}

func isHTTP(u *url.URL) bool { return u.Scheme == "http" || u.Scheme == "https" }

func parseIdentity(getenv func(string) string, name string) (Connection, error) {
	setting := func(part string) string { return strings.TrimSpace(getenv(name + "__" + part)) }
	var c Connection
	if account := setting("accountName"); account != "" {
		if !accountForm.MatchString(account) {
			return Connection{}, fmt.Errorf(
				"%s__accountName must be the name alone, in letters and digits", name)
		}
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
	credential := setting("credential")
	clientID, resourceID := setting("clientId"), setting("managedIdentityResourceId")
	var err error
	switch {
	case clientID != "" && resourceID != "":
		return Connection{}, fmt.Errorf(
			"%s__clientId and %[1]s__managedIdentityResourceId name an identity: set one", name)
	case resourceID != "" && !strings.HasPrefix(strings.ToLower(resourceID), "/subscriptions/"):
		return Connection{}, fmt.Errorf("%s__managedIdentityResourceId must be the identity's ID, "+
			"which begins with /subscriptions/", name)
	case strings.EqualFold(credential, "managedidentity"):
		var options azidentity.ManagedIdentityCredentialOptions
		if clientID != "" {
			options.ID = azidentity.ClientID(clientID)
		} else if resourceID != "" {
			options.ID = azidentity.ResourceID(resourceID)
		}
		c.identity, err = azidentity.NewManagedIdentityCredential(&options)
	case credential != "":
		return Connection{}, fmt.Errorf(
			"%s__credential must be managedidentity, or left out for the default credential", name)
	case clientID != "":
		return Connection{}, fmt.Errorf("%s__clientId needs %[1]s__credential=managedidentity",
			name)
	case resourceID != "":
		return Connection{}, fmt.Errorf(
			"%s__managedIdentityResourceId needs %[1]s__credential=managedidentity", name)
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
