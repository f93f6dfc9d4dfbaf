package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/formats"
	"tiney/internal/link"
)

var importUses = [][2]string{
	{"[-format FORMAT] [-domain HOST] [-dry-run]",
		"import links from stdin: ndjson, csv, a file of " + formatNames() + ", or auto"},
}

// auto, as format, has the format guessed.
const auto = "auto"

// formatNames returns the names of the formats of other shorteners.
func formatNames() string {
	var names []string
	for _, f := range formats.Formats {
		if !f.Own() {
			names = append(names, string(f))
		}
	}
	return strings.Join(names, ", ")
}

// importSize is how many links are imported at a time.
const importSize = 1000

// importCommand imports links as an admin. It can be stopped at any point and run again, because it
// leaves links that are already there as they are.
func importCommand(ctx context.Context, c commandEnv, args []string) error {
	options := flag.NewFlagSet("import", flag.ContinueOnError)
	name := options.String("format", string(formats.NDJSON), "")
	into := options.String("domain", "", "")
	dryRun := options.Bool("dry-run", false, "")
	if err := parse(options, args, 0); err != nil {
		return err
	}
	format := formats.Format(*name)
	if !slices.Contains(formats.Formats, format) && *name != auto {
		return usageError{
			fmt.Sprintf("the format is auto, ndjson, csv, %s, not %q", formatNames(), *name)}
	}
	var domain *link.Domain
	if *into != "" {
		d, configured, _ := c.settings.Functions.Rules.Domain(*into)
		if !configured {
			return usageError{c.settings.Functions.Rules.DomainAdvice()}
		}
		domain = &d
	}
	in := &countingReader{Reader: c.stdin}
	var (
		file io.Reader = in
		err  error
	)
	if *name == auto {
		if format, file, err = formats.Guess(in); err != nil {
			return err
		}
	}
	im := &importing{
		commandEnv: c,
		progress:   newProgress(c.stderr, sizeOf(c.stdin)),
		left:       map[string]int{},
		links: formats.Import{
			Links:      c.links,
			Rules:      c.settings.Functions.Rules,
			Format:     format,
			Owner:      access.AdminOwner,
			KeepOwners: format.Own(),
			Domain:     domain,
			DryRun:     *dryRun,
			Admin:      true,
		},
	}
	defer im.progress.clear()
	if *name == auto {
		im.progress.print("The format is %s.", format)
	}
	batches := readBatches(ctx, file, format)
	for err == nil {
		select {
		case <-ctx.Done(): // also while no input arrives
			err = ctx.Err()
		case b := <-batches:
			if err = im.add(ctx, b.records); err == nil {
				err = b.err
			}
			im.progress.show(im.made+im.there+im.refused, in.read.Load())
		}
	}
	if errors.Is(err, io.EOF) && im.refused == 0 {
		im.progress.print("%s.", im)
		return nil
	}
	if errors.Is(err, io.EOF) {
		return errors.New(im.String())
	}
	if errors.As(err, new(formats.FileError)) { // the same file would stop there again
		im.progress.print("%s", err)
		return fmt.Errorf("%s; correct the file or choose its format, then import it again", im)
	}
	im.progress.print("%s. The rest is not done; import the file again to go on.", im)
	return err
}

// importing is an import in progress.
type importing struct {
	commandEnv
	links    formats.Import
	progress *progress

	made, there, refused int
	left                 map[string]int // links by each of formats.LeftWords
}

// String says what was done.
func (im *importing) String() string {
	were := "were"
	if im.links.DryRun {
		were = "would be"
	}
	text := fmt.Sprintf("%d links %s made, %d were there, %d %s refused",
		im.made, were, im.there, im.refused, were)
	lead := "; left behind: "
	for _, word := range formats.LeftWords {
		if n := im.left[word]; n > 0 {
			text += fmt.Sprintf("%s%s (%d)", lead, word, n)
			lead = ", "
		}
	}
	return text
}

// add imports some records, and prints why others are refused.
func (im *importing) add(ctx context.Context, records []formats.Record) error {
	if len(records) == 0 {
		return nil
	}
	store := im.commandEnv.links
	return patiently(ctx, func() error {
		if err := store.Blocked.Read(ctx); err != nil { // before it, no host would count as blocked
			return err
		}
		made := 0
		var again []formats.Record
		var unavailable error
		for i, r := range im.links.Add(ctx, records, im.now()) {
			for _, word := range r.Left.Words() {
				im.left[word]++
			}
			switch {
			case errors.Is(r.Err, link.ErrUnavailable):
				again, unavailable = append(again, records[i]), r.Err
			case r.Err != nil:
				im.refused++
				im.progress.print("%s", refusal(r, records[i].Link.Name))
			case r.Created:
				made++
			default:
				im.there++
			}
		}
		im.made += made
		if made > 0 && !im.links.DryRun {
			store.Clicks.Created(made)
			// Flush logs an error, and the next flush tries again.
			_ = store.Clicks.Flush(context.WithoutCancel(ctx))
		}
		records = again
		if ctx.Err() != nil && len(again) > 0 {
			return ctx.Err()
		}
		return unavailable
	})
}

// refusal says why a record was refused, which has this name in the file.
func refusal(r formats.Result, inFile link.Name) string {
	where, name := "line", ""
	if r.Entry {
		where = "entry"
	}
	switch {
	case r.Alias != "":
		name = string(r.Domain.Name(r.Alias)) + ": "
	case inFile != "": // no alias can be so
		name = fmt.Sprintf("%.80q: ", inFile)
	}
	return fmt.Sprintf("%s %d: %s%s", where, r.Line, name, functions.ImportProblem(r.Err))
}

// batch is a part of a file. The last one has io.EOF, or the error that ended the file.
type batch struct {
	records []formats.Record
	err     error
}

// readBatches reads a file in the background, one batch ahead.
func readBatches(ctx context.Context, in io.Reader, f formats.Format) <-chan batch {
	batches := make(chan batch)
	send := func(b batch) bool {
		select {
		case batches <- b:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		var some []formats.Record
		for record, err := range formats.Read(in, f) {
			if err != nil {
				if !errors.As(err, new(formats.FileError)) {
					err = fmt.Errorf("the file cannot be read any further: %w", err)
				}
				send(batch{some, err})
				return
			}
			if some = append(some, record); len(some) == importSize {
				if !send(batch{records: some}) {
					return
				}
				some = nil
			}
		}
		send(batch{slices.Clip(some), io.EOF})
	}()
	return batches
}

// countingReader counts the bytes that were read.
type countingReader struct {
	io.Reader
	read atomic.Int64
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.read.Add(int64(n))
	return n, err
}

// sizeOf returns the size of a file in bytes, or zero if it is not known.
func sizeOf(in io.Reader) int64 {
	file, ok := in.(*os.File)
	if !ok {
		return 0
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}
