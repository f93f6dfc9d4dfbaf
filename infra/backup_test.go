//go:build unix

package infra_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"tiney/internal/testing/azurite"
	"tiney/internal/testing/freeport"
	"tiney/internal/testing/testutil"
)

// TestBackup runs the steps of the nightly backup, with a stub of az that keeps the blob in a file.
// The export comes from one emulator, and the restore goes into another.
func TestBackup(t *testing.T) {
	testutil.NotShort(t)
	workflow := read(t, "../.github/workflows/backup.yml")
	named := func(name string) string {
		return step(t, workflow, `^      - name: `+name+`\n        env:\n(?:          .*\n)+`)
	}
	// The emulator of the workflow would listen on ports that may be taken.
	restore := regexp.MustCompile(`(?s)internal/testing/azurite/.*?EXIT\n`).
		ReplaceAllString(named("Restore"), "")
	if restore == named("Restore") {
		t.Error("the workflow starts no emulator")
	}
	dir := t.TempDir()
	blobs := filepath.Join(dir, "blobs")
	if err := os.Mkdir(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	stub(t, dir, "az", fmt.Sprintf(`set -e
verb="$1 $2 $3" name='' file=''
while [ $# -gt 0 ]; do
  case $1 in --name) name=$2 ;; --file) file=$2 ;; esac
  shift
done
cd '%s'
case $verb in
  "storage blob upload") cp "$file" "$name" ;;
  "storage blob list") ls | tail -n 1 ;;
  "storage blob download") cp "$name" "$file" ;;
esac`, blobs))
	emulator := func() string {
		started, err := azurite.StartAnywhere(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { started.Stop() })
		return started.ConnectionString()
	}
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	run := func(script, storage, stdin string) (string, error) {
		cmd := asGitHub(t, script, dir, "RUNNER_TEMP="+dir, "PORT="+strconv.Itoa(port),
			"BACKUP_ACCOUNT=account", "BACKUP_CONTAINER=backups", "AzureWebJobsStorage="+storage,
			"BaseUrl=https://go.example.com", "DOMAINS=b.example")
		cmd.Dir = ".."
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	links := `{"alias":"one","longUrl":"https://example.com/1","owner":"ada","title":"One"}
{"alias":"two","longUrl":"https://example.com/2","domain":"b.example","clicks":7,"disabled":true}
{"alias":"old","longUrl":"https://example.com/3","expiresAtUtc":"2020-01-01T00:00:00Z","owner":"b"}
`
	from := emulator()
	if said, err := run("go build -o $RUNNER_TEMP/handler ./handler; $RUNNER_TEMP/handler import", from,
		links); err != nil {
		t.Fatalf("%v, %s", err, said)
	}
	if said, err := run(named("Export"), from, ""); err != nil || !strings.Contains(said, "3 links") {
		t.Errorf("the export: %v, %s", err, said)
	}
	if said, err := run(restore, emulator(), ""); err != nil || !strings.Contains(said,
		"3 links of links-") {
		t.Errorf("the restore: %v, %s", err, said)
	}
	// A backup that lost a character is noticed.
	files, err := filepath.Glob(filepath.Join(blobs, "links-*.ndjson"))
	if err != nil || len(files) != 1 {
		t.Fatalf("blobs: %v, %v", files, err)
	}
	data := []byte(read(t, files[0]))
	if err := os.WriteFile(files[0], bytes.Replace(data, []byte(`"longUrl"`), []byte(`"longUr"`), 1),
		0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := run(restore, emulator(), ""); err == nil {
		t.Errorf("a damaged backup passes: %s", said)
	}
}
