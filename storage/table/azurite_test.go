package table_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"

	"tiney/internal/testing/azurite"
	"tiney/internal/testing/tabletest"
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
	tabletest.Conform(t, service.Table, "Conform")
}

// deleting is Azure, which goes on deleting a table for a while after it was dropped: the emulator,
// and for that long it says so to all calls of the table.
type deleting struct {
	http.Handler // the emulator

	mu      sync.Mutex
	until   map[string]time.Time // by the name of the table
	refused int                  // creates
}

var tableNames = regexp.MustCompile(`Deleted[0-9]{5}x?`)

func (d *deleting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	name := tableNames.FindString(r.URL.Path + string(body))
	inTables := strings.Contains(r.URL.Path, "/Tables")
	d.mu.Lock()
	gone := time.Now().Before(d.until[name])
	if gone && inTables && r.Method == http.MethodPost {
		d.refused++
	}
	if !gone && inTables && r.Method == http.MethodDelete {
		d.until[name] = time.Now().Add(200 * time.Millisecond)
	}
	d.mu.Unlock()
	if !gone {
		d.Handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	fmt.Fprint(w, `{"odata.error":{"code":"TableBeingDeleted","message":{"lang":"en-US",`+
		`"value":"The specified table is being deleted. Try operation later."}}}`)
}

func TestConformanceWithSlowDrops(t *testing.T) {
	d := &deleting{until: map[string]time.Time{},
		Handler: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http",
			Host: fmt.Sprint("127.0.0.1:", emulator.Table)})}
	server := httptest.NewServer(d)
	t.Cleanup(func() {
		server.Close()
		if d.refused == 0 {
			t.Error("no table was being deleted")
		}
	})
	ports := emulator
	ports.Table = server.Listener.Addr().(*net.TCPAddr).Port
	service := open(t, ports.ConnectionString())
	tabletest.Conform(t, service.Table, "Deleted")
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
	tabletest.Conform(t, service.Table, "Signed")
}
