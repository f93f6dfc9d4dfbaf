package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"tiney/internal/link"
	"tiney/storage"
)

var checkUses = [][2]string{
	{"", "read all tables, and name what is damaged in them or left behind"},
	{"-repair", "do so, and mend what can be mended without guessing"},
}

// checkAge is how old a row must be to be judged. It is longer than a create or an edit takes, and
// than storage may take to apply a write that its client has given up.
const checkAge = 2 * time.Minute

// checkCommand checks the tables. The service may run meanwhile.
func checkCommand(ctx context.Context, c commandEnv, args []string) error {
	options := flag.NewFlagSet("check", flag.ContinueOnError)
	repair := options.Bool("repair", false, "")
	if err := parse(options, args, 0); err != nil {
		return err
	}
	progress := newProgress(c.stderr, 0)
	read := func(table string, rows int64) { progress.say(fmt.Sprintf("%s: %d rows", table, rows)) }
	begin := c.now()
	found := func(f storage.Finding) {
		progress.clear()
		what := ""
		switch {
		case f.Mended:
			what = " (mended)"
		case f.Err != nil:
			what = fmt.Sprintf(" (not mended: %v)", f.Err)
		case *repair:
			what = " (left: the right value is unknown)"
		}
		row := visible(f.Partition + " / " + f.Row)
		fmt.Fprintf(c.stdout, "%-21s  %s  %s: %s%s\n", f.Damage, f.Table, row, f.Detail, what)
	}
	rules := c.settings.Functions.Rules
	note := func(l link.Link) {
		if what := hidden(rules, l); what != "" {
			progress.clear()
			fmt.Fprintf(c.stdout, "No damage: %s %s\n", l.Name, what)
		}
	}
	done, err := c.links.Check(ctx, storage.CheckConfig{
		Repair: *repair, MinAge: checkAge, Read: read, Found: found, Link: note})
	progress.clear()
	if err != nil {
		return fmt.Errorf("the check is not complete: %w", err)
	}
	summary(c.stdout, done, c.now(), begin)
	left := done.Found - done.Mended - done.Strays
	switch {
	case left == 0:
		return nil
	case *repair:
		return fmt.Errorf("%d of %d are not mended; "+
			"docs/operations.md says what each of them means", left, done.Found)
	}
	return fmt.Errorf("%d rows are damaged or left behind; handler check -repair mends what it can",
		left)
}

// hidden says why people may not find a link that is in order, or why a removed link hides another
// one. It returns "" for all other links.
func hidden(rules link.Rules, l link.Link) string {
	switch {
	case l.Name.Domain() == rules.Base.Domain():
		return "cannot be reached: its domain is BaseUrl's now. docs/moving.md says how to move it."
	case !rules.AnyCase || l.Name.Lower() == l.Name:
		return ""
	case l.GoneReason != link.StateLive:
		return "is the alias of a removed link, from before ALIAS_CASE was insensitive. Until it is " +
			"dropped, this spelling leads to no other link."
	}
	return "was made before ALIAS_CASE was insensitive, and is found in this spelling only."
}

// summary writes the result of a check for people.
func summary(w io.Writer, done storage.CheckResult, now, begin time.Time) {
	total := int64(0)
	for _, rows := range done.Rows {
		total += rows
	}
	took := now.Sub(begin).Round(time.Second)
	fmt.Fprintf(w, "%d rows of %d tables were read in %v. Found: %d. Mended: %d.\n",
		total, len(done.Rows), took, done.Found, done.Mended)
	if done.Young > 0 {
		fmt.Fprintf(w, "Skipped: %d rows. They or their links changed less than two minutes ago. "+
			"Check again for those.\n", done.Young)
	}
	if done.Strays > 0 {
		fmt.Fprintf(w, "No damage: %d rows of owners' lists lead nowhere. The owners' next lists "+
			"delete them.\n", done.Strays)
	}
	if done.Overdue > 0 {
		fmt.Fprintf(w, "No damage: %d expiry rows are due, the first since %s, "+
			"and the reaper has not come to them yet.\n",
			done.Overdue, done.OldestDue.UTC().Format(time.RFC3339))
	}
	if done.Twins > 0 {
		fmt.Fprintf(w, "No damage: %d live links are beside another one of the same URL and "+
			"owner. Chosen aliases and interrupted creates cause this.\n", done.Twins)
	}
}
