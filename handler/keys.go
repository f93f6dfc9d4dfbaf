package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"tiney/internal/access"
)

var keysUses = [][2]string{
	{"list", "list the API keys of all owners"},
	{"create -name NAME -owner OWNER [-expires 2027-01-31T00:00:00Z] [-access read]",
		"make a key and print it, which nothing does again"},
	{"revoke ID", "revoke a key: every process refuses it within 15 seconds, " +
		"or a minute with CHANGES_SECONDS=0"},
}

// keysCommand lists, makes or revokes API keys.
func keysCommand(ctx context.Context, c commandEnv, args []string) error {
	if len(args) == 0 {
		return usageError{"say what to do with keys"}
	}
	options := flag.NewFlagSet("keys "+args[0], flag.ContinueOnError)
	switch args[0] {
	case "list":
		if err := parse(options, args[1:], 0); err != nil {
			return err
		}
		return listKeys(ctx, c)
	case "create":
		name, owner := options.String("name", "", ""), options.String("owner", "", "")
		var ends *time.Time
		options.Func("expires", "", func(text string) error {
			at, err := time.Parse(time.RFC3339, text)
			ends = &at
			return err
		})
		may := options.String("access", "write", "")
		if err := parse(options, args[1:], 0); err != nil {
			return err
		}
		if *may != "write" && *may != "read" {
			return usageError{fmt.Sprintf("the access is write or read, not %q", *may)}
		}
		return createKey(ctx, c, *name, *owner, ends, *may == "read")
	case "revoke":
		if err := parse(options, args[1:], 1); err != nil {
			return err
		}
		err := c.links.Keys.Revoke(ctx, options.Arg(0), nil)
		if errors.Is(err, access.ErrUnknownKey) {
			return errors.New("no key has this id; the first column of handler keys list has the " +
				"ids")
		}
		return err
	}
	return usageError{fmt.Sprintf("keys cannot %q", args[0])}
}

func listKeys(ctx context.Context, c commandEnv) error {
	keys, err := c.links.Keys.List(ctx, nil)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tENDS IN\tOWNER\tNAME\tMADE\tEXPIRES\tLAST USED\tACCESS")
	for _, k := range keys {
		expires, may := "never", "write"
		if k.ReadOnly {
			may = "read"
		}
		if !k.ExpiresAt.IsZero() {
			expires = k.ExpiresAt.Format(time.RFC3339)
		}
		cells := []string{k.ID(), k.Last4, k.Owner, k.Name, k.CreatedAt.Format(time.RFC3339),
			expires, cmp.Or(k.LastUsedOn, "never"), may}
		for i, cell := range cells {
			cells[i] = visible(cell)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}

func createKey(ctx context.Context, c commandEnv, name, owner string, ends *time.Time,
	readOnly bool) error {
	secret, k, err := access.MakeKey(rand.Reader, access.Caller{}, owner, name, ends, c.now())
	if invalid := (*access.InvalidKeyError)(nil); errors.As(err, &invalid) {
		return usageError{invalid.Detail}
	}
	if err == nil {
		k.ReadOnly = readOnly
		err = c.links.Keys.Create(ctx, k)
	}
	if err == nil {
		_, err = fmt.Fprintln(c.stdout, secret)
	}
	return err
}

// visible replaces the characters that a terminal does not print, because a client may have chosen
// the text.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
