package table_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"tiney/internal/azurite"
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
			"B is not complete"},
		"key not base64": {map[string]string{"A": "AccountName=a;AccountKey=not/base64!"},
			"A has an AccountKey that is not valid base64"},
		"endpoint no URL": {map[string]string{"B": "AccountName=a;TableEndpoint=a.table;AccountKey=" + key}, "B gives no valid URL for its table service"},
		"account with a space": {map[string]string{"B": "AccountName=a b;AccountKey=" + key},
			"B gives no valid URL"},
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
