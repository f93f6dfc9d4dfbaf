package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"tiney/handler/app"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage"
)

// commandEnv is the environment of a subcommand. It starts nothing in the background.
type commandEnv struct {
	settings       app.Settings // from app.ReadLinkSettings
	links          *storage.Links
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time
}

// subcommands are selected by the first argument. run gets the other arguments.
var subcommands = []struct {
	name string
	uses [][2]string // arguments, and their effect
	run  func(ctx context.Context, c commandEnv, args []string) error
}{
	{"check", checkUses, checkCommand},
	{"keys", keysUses, keysCommand},
	{"export", exportUses, exportCommand},
	{"import", importUses, importCommand},
}

// The exit codes of subcommands.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is an error in the arguments.
type usageError struct{ what string }

func (e usageError) Error() string { return e.what }

// command runs a subcommand and returns the exit code.
func command(
	ctx context.Context, args []string, getenv func(string) string,
	stdin io.Reader, stdout, stderr io.Writer,
) int {
	help := func(arg string) bool { return slices.Contains([]string{"-h", "-help", "--help"}, arg) }
	if args[0] == "help" || slices.ContainsFunc(args, help) {
		usage(stdout)
		return exitDone
	}
	err := error(usageError{fmt.Sprintf("there is no subcommand %q", args[0])})
	for _, s := range subcommands {
		if s.name == args[0] {
			var c commandEnv
			if c, err = newCommandEnv(getenv, stdin, stdout, stderr); err == nil {
				err = s.run(ctx, c, args[1:])
			}
		}
	}
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, new(usageError)):
		fmt.Fprintf(stderr, "%s\n\n", err)
		usage(stderr)
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "interrupted")
	default:
		fmt.Fprintln(stderr, err)
		if errors.Is(err, link.ErrUnavailable) {
			fmt.Fprintln(stderr, "Storage did not do it. Look at TABLE_CONNECTION or "+
				"AzureWebJobsStorage, and whether this machine may reach that account.")
		}
	}
	return exitFailed
}

func newCommandEnv(
	getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer,
) (commandEnv, error) {
	s, err := app.ReadLinkSettings(getenv)
	if err != nil {
		return commandEnv{}, err
	}
	if err := s.OpenTables(nil); err != nil {
		return commandEnv{}, err
	}
	tables := s.Storage
	tables.Now, tables.Random, tables.Metrics = time.Now, rand.Reader, new(telemetry.Metrics)
	tables.Log = telemetry.NewLogger(stderr, slog.LevelWarn)
	links, err := storage.Open(tables)
	if err != nil {
		return commandEnv{}, err
	}
	return commandEnv{s, links, stdin, stdout, stderr, time.Now}, nil
}

func usage(w io.Writer) {
	fmt.Fprintf(w, "Usage, with the settings of the service in the environment:\n")
	const form = "  handler %s\n        %s\n"
	fmt.Fprintf(w, form, "", "serve")
	fmt.Fprintf(w, form, "-memory", "serve a first try, without storage: links are gone at its end")
	for _, s := range subcommands {
		for _, use := range s.uses {
			fmt.Fprintf(w, form, strings.TrimSpace(s.name+" "+use[0]), use[1])
		}
	}
	fmt.Fprintf(w, form, "help", "print this")
}

// parse parses the options of a subcommand. As many other arguments as others says must follow
// them. The error is a usageError.
func parse(options *flag.FlagSet, args []string, others int) error {
	options.SetOutput(io.Discard)
	if err := options.Parse(args); err != nil {
		return usageError{err.Error()}
	}
	if options.NArg() != others {
		return usageError{fmt.Sprintf("handler %s takes %d arguments besides its options, not %q",
			options.Name(), others, options.Args())}
	}
	return nil
}
