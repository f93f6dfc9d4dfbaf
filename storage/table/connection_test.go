package table_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"tiney/internal/testing/azurite"
	"tiney/storage/table"
)

func TestParseConnection(t *testing.T) {
	key := base64.StdEncoding.EncodeToString([]byte("a key that must not be told"))
	for name, test := range map[string]struct {
		settings map[string]string
		wrong    string // part of the error; "" where there is none
	}{
		"connection string": {map[string]string{"B": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=" + key + ";EndpointSuffix=core.windows.net"}, ""},
		"with a semicolon at the end": {map[string]string{"B": "AccountName=a;AccountKey=" + key +
			";"}, ""},
		"development storage":          {map[string]string{"B": "UseDevelopmentStorage=true"}, ""},
		"development storage, proxied": {map[string]string{"B": "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://127.0.0.1"}, ""},
		"emulator's own":               {map[string]string{"B": azurite.DefaultPorts.ConnectionString()}, ""},
		"shared access signature":      {map[string]string{"B": "BlobEndpoint=https://a.blob.core.windows.net/;TableEndpoint=https://a.table.core.windows.net/;SharedAccessSignature=sv=1&sig=" + key}, ""},
		"the first one wins": {map[string]string{"A": "UseDevelopmentStorage=true",
			"B": "wrong"}, ""},
		"the exact name wins": {map[string]string{"A": "UseDevelopmentStorage=true",
			"A__accountName": "a b"}, ""},
		"identity by resource": {map[string]string{"B__accountName": " a ",
			"B__credential":                "managedidentity",
			"B__managedIdentityResourceId": "/subscriptions/1/resourceGroups/g/providers/x/y"}, ""},
		"identity by account": {map[string]string{"B__accountName": "a",
			"B__credential": "managedidentity"}, ""},
		"identity, user-assigned": {map[string]string{"B__accountName": "a",
			"B__credential": "ManagedIdentity",
			"B__clientId":   "00000000-0000-0000-0000-000000000000"}, ""},
		"identity by URIs": {map[string]string{"B__tableServiceUri": "https://a.table.core.windows.net/", "B__blobServiceUri": "https://a.blob.core.windows.net", "B__credential": "managedidentity"}, ""},
		"default identity": {map[string]string{"A__accountName": "a"}, ""},

		"nothing":  {nil, "B is required"},
		"no pairs": {map[string]string{"B": key}, "B is not a connection string"},
		"no account": {map[string]string{"B": "AccountKey=" + key},
			"B has an AccountKey but no AccountName"},
		"no key": {map[string]string{"B": "AccountName=a"},
			"B is not complete: it lacks an AccountKey"},
		"an account that is a host": {map[string]string{
			"B__accountName": "a.table.core.windows.net"}, "B__accountName must be the name alone"},
		"an account that is a URL": {map[string]string{"B__accountName": "https://a"},
			"B__accountName must be the name alone"},
		"two identities": {map[string]string{"B__accountName": "a",
			"B__credential": "managedidentity", "B__clientId": "x",
			"B__managedIdentityResourceId": "/subscriptions/x"}, "set one"},
		"an identity that is no resource": {map[string]string{"B__accountName": "a",
			"B__credential": "managedidentity", "B__managedIdentityResourceId": "my-identity"},
			"B__managedIdentityResourceId must be the identity's ID"},
		"resource without identity": {map[string]string{"B__accountName": "a",
			"B__managedIdentityResourceId": "/subscriptions/x"},
			"B__managedIdentityResourceId needs B__credential"},
		"an identity without account": {map[string]string{"A__credential": "managedidentity",
			"B": "UseDevelopmentStorage=true"}, "A__credential needs A__accountName"},
		"a client without account": {map[string]string{"B__clientId": "x"},
			"B__clientId needs B__accountName"},
		"key not base64": {map[string]string{"A": "AccountName=a;AccountKey=not/base64!"},
			"A has an AccountKey that is not valid base64"},
		"endpoint no URL": {map[string]string{"B": "AccountName=a;TableEndpoint=a.table;AccountKey=" + key},
			"B has a TableEndpoint that is no http or https URL"},
		"account with a space": {map[string]string{"B": "AccountName=a b;AccountKey=" + key},
			"B has an AccountName with other signs"},
		"identity over http": {map[string]string{"B__tableServiceUri": "http://a.table.core.windows.net", "B__credential": "managedidentity"}, "B__tableServiceUri must be an https URL"},
		"another credential": {map[string]string{"B__accountName": "a",
			"B__credential": "workload"}, "B__credential must be managedidentity"},
		"client id without identity": {map[string]string{"B__accountName": "a", "B__clientId": "x"},
			"B__clientId needs B__credential"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := table.ParseConnection(func(name string) string { return test.settings[name] },
				table.TableService, "A", "B")
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Fatalf("got %v, want %q", err, test.wrong)
				}
				if strings.Contains(err.Error(), key) || strings.Contains(err.Error(),
					"not/base64!") {
					t.Errorf("%q tells the key", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := table.Open(c, nil); err != nil {
				t.Errorf("tables: %v", err)
			}
			if _, err := c.BlobContainer("locks", nil); err != nil {
				t.Errorf("lock: %v", err)
			}
		})
	}
}

// TestConnectionStrings has further connection strings, as people paste them.
func TestConnectionStrings(t *testing.T) {
	key := base64.StdEncoding.EncodeToString([]byte("a key that must not be told"))
	named, keyed := "AccountName=a;", "AccountKey="+key+";"
	both := named + keyed
	const azure, emulator = "https://a.table.core.windows.net", "UseDevelopmentStorage=true"
	const noString = "is not a connection string: "
	for given, want := range map[string]string{ // where the tables are, or what is wrong
		both:                              azure,
		"accountname=a;accountkey=" + key: azure,
		"ACCOUNTNAME=a;ACCOUNTKEY=" + key + ";DEFAULTENDPOINTSPROTOCOL=HTTP": "http://a.table.core." +
			"windows.net",
		" AccountName = a ; AccountKey = " + key + " ; ":                      azure,
		"AccountName=a;\r\n  AccountKey=" + key + "\n":                        azure,
		"AccountName=a;\u00a0AccountKey=" + key:                               azure,
		";;" + both + ";":                                                     azure,
		`"` + both + `"`:                                                      azure,
		` "` + named + ` AccountKey=` + key + ` " `:                           azure,
		"'" + both + "'":                                                      azure,
		" “" + both + "” ":                                                    azure,
		both + "EndpointSuffix=core.chinacloudapi.cn":                         "https://a.table.core.chinacloudapi.cn",
		both + "endpointsuffix=core.windows.net.":                             azure + ".",
		both + "tableendpoint=https://b.example/":                             "https://b.example",
		both + "QueueEndpoint=x;FileEndpoint=x":                               azure,
		both + "dfsendpoint=x;BlobSecondaryEndpoint=x":                        azure,
		both + "UseDevelopmentStorage=false":                                  azure,
		"TableEndpoint=" + azure + "/;SharedAccessSignature=?sv=1&sig=" + key: azure,

		emulator:                          "http://127.0.0.1:10002/devstoreaccount1",
		`"usedevelopmentstorage=TRUE"`:    "http://127.0.0.1:10002/devstoreaccount1",
		" UseDevelopmentStorage = true ;": "http://127.0.0.1:10002/devstoreaccount1",
		emulator + ";DevelopmentStorageProxyUri=http://azurite": "http://azurite:10002/" +
			"devstoreaccount1",
		emulator + ";DevelopmentStorageProxyUri=https://azurite:8080/": "https://azurite:10002/" +
			"devstoreaccount1",
		"developmentstorageproxyuri=http://[::1];" + emulator: "http://[::1]:10002/devstoreaccount1",

		emulator + ";DevelopmentStorageProxyUri=azurite": "has a DevelopmentStorageProxyUri that",
		"DevelopmentStorageProxyUri=http://azurite":      "has a DevelopmentStorageProxyUri without",
		emulator + ";TableEndpoint=http://azurite:10002": "has UseDevelopmentStorage=true, beside",
		emulator + ";" + both:                            "has UseDevelopmentStorage=true, beside",
		"UseDevelopmentStorage=yes":                      "has a UseDevelopmentStorage",

		keyed:                          "has an AccountKey but no AccountName",
		named:                          "is not complete: it lacks an AccountKey",
		named + "AccountKey=":          "is not complete: it lacks an AccountKey",
		"Acount=a;" + keyed:            `has the key "Acount"`,
		both + "TableEndpiont=https:x": `has the key "TableEndpiont"`,
		"B=" + both:                    `has the key "B"`,
		key:                            noString + "it must be Key=Value pairs with semicolons",
		key + "=":                      noString + "part 1 has no known key",
		named + key: noString + "it must be Key=Value pairs with semicolons " +
			"between them, and part 2 is none",
		azure + "/?sv=1&sig=" + key:                      noString + "part 1 has no known key",
		`"` + both:                                       noString + "part 1 has no known key",
		"\ufeff" + both:                                  noString + "part 1 has no known key",
		both + "accountname=b":                           "has AccountName twice",
		both + "DefaultEndpointsProtocol=ftp":            "has a DefaultEndpointsProtocol",
		both + "EndpointSuffix=https://core.windows.net": "has an EndpointSuffix",
		both + "EndpointSuffix=.core.windows.net":        "has an EndpointSuffix",
		"AccountName=a.blob.core.windows.net;" + keyed:   "has an AccountName",
		`AccountName="a";` + keyed:                       "has an AccountName",
		both + "TableSecondaryEndpoint=a":                "has a TableSecondaryEndpoint",
		both + "BlobEndpoint=ftp://a":                    "has a BlobEndpoint",
		"@Microsoft.KeyVault(SecretUri=https://v.vault.azure.net/secrets/s)": "is a reference to " +
			"Key Vault",
	} {
		c, err := table.ParseConnection(func(string) string { return given }, table.TableService, "B")
		switch {
		case strings.HasPrefix(want, "http"):
			if err != nil || fmt.Sprint(c.TableURL()) != want {
				t.Errorf("%q leads to %s, %v, want %s", given, c.TableURL(), err, want)
			}
		case err == nil || !strings.HasPrefix(err.Error(), "B "+want) ||
			strings.Contains(err.Error(), key):
			t.Errorf("%q: got %v, want %q", given, err, want)
		}
	}
}

// Names of identity settings that would have no effect are refused.
func TestMisspelledIdentitySettings(t *testing.T) {
	for name, wrong := range map[string]bool{
		"A__accountName": false, "A__credential": false, "A__queueServiceUri": false,
		"A__QUEUESERVICEURI": false, "A__retry__maxRetries": false, "A__Retry__MaxDelay": false,
		"A__diagnostics__applicationId": false, "A_OTHER": false, "AB__x": false, "A_": false,
		"AccountName": false, "A": false, "A__blobServiceUri": false, "A__clientSecretx": true,

		"A__accountname": true, "A__AccountName": true, "a__accountName": true,
		"A_accountName": true, "A:accountName": true, "A__tableServiceURI": true,
		"A__clientID": true, "A__managedIdentityClientId": true, "A__managedIdentityObjectId": true,
		"A__tenantId": false, "A__TENANTID": false, "A__tenant": true, "A__retryx": true,
		"A__clientSecret": true, "A__serviceUri": true, "A__account": true,
		"A__retry": true, "A__": true, "A__tableServiceUri ": true, "A:x": false,
	} {
		t.Run(name, func(t *testing.T) {
			const value = "https://a.example"
			t.Setenv(name, value)
			getenv := func(asked string) string {
				return map[string]string{name: value, "A__tableServiceUri": value + "/x"}[asked]
			}
			if name == "A__accountName" || name == "A" || name == "A__credential" {
				t.Setenv(name, "") // has no such value
			}
			_, err := table.ParseConnection(getenv, table.TableService, "A")
			told := err != nil && strings.HasPrefix(err.Error(), name+" has no effect: the names "+
				"that work are A__accountName, __tableServiceUri, __blobServiceUri, __credential, "+
				"__clientId, __managedIdentityResourceId")
			if told != wrong || wrong && strings.Contains(err.Error(), value) {
				t.Errorf("got %v", err)
			}
			// Without the right names it is told, too.
			getenv = func(string) string { return "" }
			_, err = table.ParseConnection(getenv, table.TableService, "A")
			if told := strings.Contains(err.Error(), "has no effect"); wrong && !told {
				t.Errorf("alone: got %v", err)
			}
		})
	}
	t.Setenv("A__accountname", "a")
	getenv := func(asked string) string { // the environment of Windows
		return map[string]string{"a__accountname": "a"}[strings.ToLower(asked)]
	}
	if _, err := table.ParseConnection(getenv, table.TableService, "A"); err != nil {
		t.Errorf("where names have no case: %v", err)
	}
	t.Setenv("A__x", "a")
	getenv = func(string) string { return "UseDevelopmentStorage=true" }
	if _, err := table.ParseConnection(getenv, table.TableService, "A"); err != nil {
		t.Errorf("beside a connection string: %v", err)
	}
}

func TestAConnectionForOneServiceOnly(t *testing.T) {
	for setting, service := range map[string]string{"A__tableServiceUri": table.TableService,
		"A__blobServiceUri": table.BlobService} {
		for _, want := range []string{table.TableService, table.BlobService} {
			_, err := table.ParseConnection(func(name string) string {
				return map[string]string{setting: "https://a.example"}[name]
			}, want, "A")
			if (err == nil) != (service == want) {
				t.Errorf("%s for the %s service: %v", setting, want, err)
			}
		}
	}
}

func FuzzConnectionString(f *testing.F) {
	f.Add(azurite.DefaultPorts.ConnectionString())
	f.Add("UseDevelopmentStorage=true")
	f.Add("AccountName=a;AccountKey=YQ==")
	f.Add("TableEndpoint=https://a;SharedAccessSignature=sv=1")
	f.Fuzz(func(t *testing.T, s string) {
		getenv := func(string) string { return s }
		// What is accepted must do: there is no later place to say what is wrong with it.
		if c, err := table.ParseConnection(getenv, table.TableService, "A"); err == nil {
			if _, err := table.Open(c, nil); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
		if c, err := table.ParseConnection(getenv, table.BlobService, "A"); err == nil {
			if _, err := c.BlobContainer("locks", nil); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
	})
}

func TestSecondaryConnection(t *testing.T) {
	const key = ";AccountKey=c2VjcmV0"
	for _, test := range []struct{ primary, where, asked string }{
		{"DefaultEndpointsProtocol=https;AccountName=links" + key, "true",
			"links-secondary.table.core.windows.net"},
		{"AccountName=links;EndpointSuffix=core.chinacloudapi.cn" + key, "True",
			"links-secondary.table.core.chinacloudapi.cn"},
		{"AccountName=links;TableEndpoint=https://links.z12.table.storage.azure.net" + key, "true",
			"links-secondary.z12.table.storage.azure.net"},
		{"AccountName=links;TableSecondaryEndpoint=https://elsewhere.example/t/" + key, "true",
			"elsewhere.example/t"},
		{"AccountName=links" + key, "https://elsewhere.example/", "elsewhere.example"},
		{"AccountName=links;TableEndpoint=https://links.example" + key, "true", ""},
		{"UseDevelopmentStorage=true", "true", ""},
		{"AccountName=links" + key, "yes", ""},
		{"AccountName=links" + key, "https://elsewhere.example?sig=x", ""},
	} {
		c, err := parse(t, test.primary).Secondary(test.where)
		if test.asked == "" {
			if err == nil {
				t.Errorf("%s of %s is taken", test.where, test.primary)
			}
			continue
		}
		if err != nil || !strings.HasSuffix(fmt.Sprint(c.TableURL()), "://"+test.asked) {
			t.Errorf("%s of %s is %s, %v", test.where, test.primary, c.TableURL(), err)
		}
	}
}

func parse(t *testing.T, connectionString string) table.Connection {
	t.Helper()
	c, err := table.ParseConnection(func(string) string { return connectionString },
		table.TableService, "X")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
