package table_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"tiney/internal/azurite"
	"tiney/internal/tabletest"
	"tiney/storage"
	"tiney/storage/table"
)

// emulator is the one Azurite of all tests here. Each test has tables of its own in it.
var emulator azurite.Ports

func TestMain(m *testing.M) {
	os.Exit(azurite.ForTests(func(ports azurite.Ports) int {
		emulator = ports
		return m.Run()
	}))
}

func open(t *testing.T, connectionString string) *table.Service {
	t.Helper()
	service, err := table.Open(parse(t, connectionString), nil)
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func TestConformance(t *testing.T) {
	service := open(t, emulator.ConnectionString())
	tabletest.Conform(t, service, func(name string) storage.Table { return service.Table(name) },
		"Conform")
}

// A shared access signature reaches the emulator like a key does.
func TestSharedAccessSignature(t *testing.T) {
	key, err := aztables.NewSharedKeyCredential(azurite.Account, azurite.Key)
	if err != nil {
		t.Fatal(err)
	}
	sas, err := aztables.AccountSASSignatureValues{
		Protocol:   aztables.SASProtocolHTTPSandHTTP,
		Services:   "t",
		ExpiryTime: time.Now().Add(time.Hour),
		Permissions: (&aztables.AccountSASPermissions{Read: true, Write: true, Delete: true,
			List: true,
			Add:  true, Create: true, Update: true}).String(),
		ResourceTypes: (&aztables.AccountSASResourceTypes{Service: true, Container: true,
			Object: true}).String(),
	}.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	signed := fmt.Sprintf("TableEndpoint=http://127.0.0.1:%d/%s;SharedAccessSignature=%s",
		emulator.Table, azurite.Account, sas.Encode())
	service := open(t, signed)
	tabletest.Conform(t, service, func(name string) storage.Table { return service.Table(name) },
		"Signed")
}
