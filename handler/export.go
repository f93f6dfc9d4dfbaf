package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/formats"
	"tiney/internal/link"
)

var exportUses = [][2]string{
	{"[-format ndjson|csv] [-for spreadsheet]",
		"write the links of all owners, of every state but deleted, to stdout"},
}

// exportSize is how many links are exported at a time.
const exportSize = 100

// exportCommand writes all links and their clicks, a few at a time.
func exportCommand(ctx context.Context, c commandEnv, args []string) error {
	options := flag.NewFlagSet("export", flag.ContinueOnError)
	name := options.String("format", string(formats.NDJSON), "")
	use := options.String("for", "", "")
	if err := parse(options, args, 0); err != nil {
		return err
	}
	format := formats.Format(*name)
	if !format.Own() {
		return usageError{fmt.Sprintf("links can be written as ndjson or csv, not %q", *name)}
	}
	if *use != "" && (*use != "spreadsheet" || format != formats.CSV) {
		return usageError{fmt.Sprintf(
			"links can be written for a spreadsheet, as csv, not for %q as %s", *use, *name)}
	}
	p := newProgress(c.stderr, 0)
	defer p.clear()
	buffer := bufio.NewWriter(c.stdout)
	out := formats.NewWriter(buffer, format, c.settings.Functions.Rules, *use != "")
	exported, damaged, after := 0, 0, ""
	for {
		var links []link.Link
		var totals []clicks.Total
		var next string
		var bad int
		if err := patiently(ctx, func() (err error) {
			if links, next, bad, err = c.links.All(ctx, after, exportSize); err == nil {
				totals, err = c.links.Clicks.Totals(ctx, links)
			}
			return err
		}); err != nil {
			return err
		}
		for i, l := range links {
			if !l.DeletedAt.IsZero() {
				continue
			}
			if err := out.Write(formats.Record{Link: l, Total: totals[i]}); err != nil {
				return err
			}
			exported++
		}
		damaged += bad
		p.show(exported, 0)
		if after = next; after == "" {
			break
		}
	}
	if err := errors.Join(out.Flush(), buffer.Flush()); err != nil {
		return err
	}
	p.print("%d links were exported.", exported)
	if damaged > 0 {
		return fmt.Errorf("%d rows are no links, and are not in the export", damaged)
	}
	return nil
}

// patiently repeats a call while it returns link.ErrUnavailable, for about a minute in all.
func patiently(ctx context.Context, do func() error) error {
	for pause := time.Second; ; pause *= 2 {
		err := do()
		if !errors.Is(err, link.ErrUnavailable) || pause > 32*time.Second {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
