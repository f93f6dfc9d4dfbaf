package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"tiney/internal/formats"
	"tiney/internal/link"
)

// The subcommands themselves are tested in internal/testing/e2e, over Azurite.
func TestUsage(t *testing.T) {
	const emulator, nowhere = "UseDevelopmentStorage=true",
		"AccountName=x;AccountKey=eA==;TableEndpoint=http://127.0.0.1:1/x"
	for name, test := range map[string]struct {
		args, connection string
		exit             int
		stdout, stderr   string // parts of the output; "" for no output
	}{
		"help":                 {"help", "", exitDone, "handler keys revoke ID\n", ""},
		"-h":                   {"-h", "", exitDone, "Usage", ""},
		"help on a subcommand": {"keys list --help", "", exitDone, "Usage", ""},
		"unknown":              {"serve", "", exitUsage, "", `no subcommand "serve"`},
		"unknown, for keys":    {"keys drop", emulator, exitUsage, "", `keys cannot "drop"`},
		"nothing for keys":     {"keys", emulator, exitUsage, "", "Usage"},
		"unknown option":       {"keys list -all", emulator, exitUsage, "", "-all"},
		"an argument too many": {"keys list all", emulator, exitUsage, "", "takes 0 arguments"},
		"an argument too few":  {"keys revoke", emulator, exitUsage, "", "takes 1 arguments"},
		"no owner": {"keys create -name x", emulator, exitUsage, "",
			"The owner must have"},
		"the admin": {"keys create -name x -owner admin", emulator, exitUsage, "",
			"cannot be admin"},
		"no name": {"keys create -owner x", emulator, exitUsage, "", "a name"},
		"an end that is no end": {"keys create -name x -owner x -expires tomorrow", emulator,
			exitUsage, "", "tomorrow"},
		"an end that is past": {"keys create -name x -owner x -expires 2001-01-01T00:00:00Z",
			emulator, exitUsage, "", "The end must be"},
		"no connection": {"keys list", "", exitFailed, "",
			"AzureWebJobsStorage is required"},
		"in memory": {"keys list", "memory", exitFailed, "",
			"TABLE_CONNECTION must be a storage account"},
		"in memory, and more": {"-memory -x", "", exitUsage, "", `handler -memory`},
		"nobody there":        {"keys list", nowhere, exitFailed, "", "may reach that account"},
		"another format":      {"export -format yourls", emulator, exitUsage, "", `not "yourls"`},
		"for something else": {"export -format csv -for pandas", emulator, exitUsage, "",
			`not for "pandas"`},
		"JSON for spreadsheets": {"export -for spreadsheet", emulator, exitUsage, "", "as ndjson"},
		"no format":             {"import -format xml", emulator, exitUsage, "", "golink"},
		"a file as argument":    {"import links.csv", emulator, exitUsage, "", "takes 0 arguments"},
		"an unknown domain": {"import -domain new.example", emulator, exitUsage, "",
			"This service has no such domain. It has: localhost:7071, go.example.\n"},
		"no domain": {"import -domain https://go.example", emulator, exitUsage, "",
			"This service has no such domain."},
		"a domain": {"import -domain Go.Example.", nowhere, exitFailed, "", "0 links were made"},
		"the default domain": {"import -domain localhost:7071", nowhere, exitFailed, "",
			"0 links were made"},
		"a file that is none": {"import -format bitly", nowhere, exitFailed, "",
			"The file is empty."},
		"nothing to import": {"import", nowhere, exitFailed, "", "There is no link in this file"},
		"nothing to guess by": {"import -format auto", nowhere, exitFailed, "",
			"There is no link in this file"},
		"an id that is none": {"keys revoke x", emulator, exitFailed, "", "no key has this id"},
	} {
		t.Run(name, func(t *testing.T) {
			getenv := func(name string) string {
				// Subcommands read only the settings of links, and need no BaseUrl and no lock.
				if name == "TABLE_CONNECTION" && test.connection == "memory" {
					return test.connection
				}
				return map[string]string{"AzureWebJobsStorage": test.connection, "LOG_LEVEL": "none",
					"ADMIN_KEY": "short", "DOMAINS": "go.example"}[name]
			}
			var stdout, stderr bytes.Buffer
			exit := command(t.Context(), strings.Fields(test.args), getenv, strings.NewReader(""),
				&stdout, &stderr)
			if exit != test.exit || !strings.Contains(stdout.String(), test.stdout) ||
				!strings.Contains(stderr.String(), test.stderr) ||
				(test.stdout == "") != (stdout.Len() == 0) ||
				(test.stderr == "") != (stderr.Len() == 0) ||
				strings.Contains(stderr.String(), "eA==") { // the account's key
				t.Errorf("got %d, %q, %q", exit, &stdout, &stderr)
			}
		})
	}
}

// A refusal names the line or the entry, and the alias as the file has it.
func TestRefusal(t *testing.T) {
	for want, test := range map[string]struct {
		result formats.Result
		inFile link.Name
	}{
		"line 7: a: This alias is taken: ": {formats.Result{Line: 7, Alias: "a",
			Err: link.ErrAliasTaken}, "a"},
		"entry 7: a@go.example: This alias is taken: ": {formats.Result{Line: 7, Entry: true,
			Alias: "a", Domain: "go.example", Err: link.ErrAliasTaken}, "a"},
		`line 2: "a.b\n": This record cannot be read: x`: {formats.Result{Line: 2,
			Err: formats.RecordError("x")}, "a.b\n"},
		"entry 3: This record cannot be read: x": {formats.Result{Line: 3, Entry: true,
			Err: formats.RecordError("x")}, ""},
		`line 2: "` + strings.Repeat("ü", 80) + `": This record`: {formats.Result{Line: 2,
			Err: formats.RecordError("x")}, link.Name(strings.Repeat("ü", 1<<20))},
	} {
		if got := refusal(test.result, test.inFile); !strings.HasPrefix(got, want) {
			t.Errorf("got %.300q, want %q", got, want)
		}
	}
}

// What an import leaves behind is summed up, in the order of the documents.
func TestImportSums(t *testing.T) {
	im := &importing{made: 3, there: 2, refused: 1}
	const sums = "3 links were made, 2 were there, 1 were refused"
	if got := im.String(); got != sums {
		t.Errorf("got %q", got)
	}
	im.left = map[string]int{"owner": 5, "password": 1, "rules": 0}
	if got := im.String(); got != sums+"; left behind: password (1), owner (5)" {
		t.Errorf("got %q", got)
	}
}

// To import the same file again would not help. The reason comes first.
func TestImportInTheWrongFormat(t *testing.T) {
	getenv := func(name string) string {
		return map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true"}[name]
	}
	var stdout, stderr bytes.Buffer
	exit := command(t.Context(), []string{"import", "-format", "yourls"}, getenv,
		strings.NewReader("alias,longUrl\nabc,https://example.com/\n"), &stdout, &stderr)
	reason, then, _ := strings.Cut(stderr.String(), "\n")
	if exit != exitFailed || !strings.Contains(reason, `it has "alias, longUrl"`) ||
		then != "0 links were made, 0 were there, 0 were refused; "+
			"correct the file or choose its format, then import it again\n" {
		t.Errorf("got %d, %q", exit, &stderr)
	}
}

func TestProgressBeforeTheClockMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, links := range []int{0, 1, 1000} {
			var shown bytes.Buffer
			p := newProgress(&shown, 10)
			p.terminal = true
			p.show(links, 10)
			if text := shown.String(); !strings.Contains(text, "0/s") ||
				strings.Contains(text, "Inf") || strings.Contains(text, "NaN") {
				t.Errorf("%d links: it shows %q", links, text)
			}
		}
	})
}
