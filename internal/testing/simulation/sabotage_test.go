//go:build unix

package simulation

import (
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var sabotaged = flag.Bool("simulation.sabotage", false,
	"break the product in each way that TestSabotage knows")

// mutants are faults: in a file, a text and what it becomes. The file is one of package storage, or
// has its folder. With each of them a promise is broken, that of its name.
var mutants = []struct{ name, file, from, to string }{
	{"an edit guards no row of the index", "edit.go",
		"if m.guard, err = e.s.guard(ctx, was.Link, next.Link); err != nil {",
		"if err != nil {"},
	{"a restored link is not taken out of the index before", "edit.go",
		"released, err := e.s.release(ctx, was, after.index)", "released, err := false, error(nil)"},
	{"a guard goes although an insert may still arrive", "edit.go",
		"if !left(err) && !late && !e.s.endsSoon(next.Link) {", "if _ = late; !left(err) {"},
	{"a new end has no expiry row", "edit.go",
		"etag, err := e.s.expiry.put(ctx, due, next.Name)",
		`etag, err := table.ETag(""), error(nil)`},
	{"an edit is not announced", "edit.go",
		"if !e.announced {", "if false {"},
	{"a link that changes hands is not listed", "edit.go",
		"if err := e.s.owners.put(ctx, after.listed, next.createID); err != nil {", "if err != nil {"},
	{"a transfer takes a row of the former list whatever it is", "edit.go",
		"e.s.owners.delete(ctx, m.listed)",
		"e.s.owners.rows.Delete(ctx, table.Key{Partition: m.listed.Partition, " +
			"Row: m.listed.Row, ETag: table.Any})"},
	{"a former owner's row of the index stays", "edit.go",
		"return late, e.s.index.drop(ctx, key, old.etag)", "return late, nil"},
	{"a link enters the index for a former owner", "index.go",
		"there.LongURL == l.LongURL &&\n\t\tthere.Owner == l.Owner {",
		"there.LongURL == l.LongURL {"},
	{"a former owner is given the link", "create.go",
		"case r.LongURL != c.want.LongURL, r.Owner != c.want.Owner:",
		"case r.LongURL != c.want.LongURL:"},
	{"an edit forgets the history", "edit.go",
		"e.s.links.whole(ctx, a)", "e.s.links.get(ctx, a)"},
	{"a takedown is not kept", "rows_link.go", "Locked: r.Locked, History", "History"},
	{"a reaper reads the link before what leads to it", "reap.go",
		"if err := r.dropStale(ctx, d, seen);",
		"seen, _ = r.readGuarded(ctx, d)\nif err := r.dropStale(ctx, d, seen);"},
	{"a link is handed over while the index leads to it", "edit.go",
		"released, err := e.s.release(ctx, was, after.index)",
		"released, err := false, error(nil)\n\tif !transferred {\n" +
			"released, err = e.s.release(ctx, was, after.index)\n}"},
	{"a restored link does not enter the index", "edit.go",
		"m.claims = released || restored || transferred",
		"m.claims = (released || restored || transferred) && false"},
	{"no restore succeeds", "edit.go",
		"if !next.Changed(was.Link) {",
		"if next.DeletedAt.IsZero() && !was.DeletedAt.IsZero() {\n" +
			"return linkRow{}, link.ErrUnavailable\n}\nif !next.Changed(was.Link) {"},
	{"no claim succeeds", "edit.go",
		"if !next.Changed(was.Link) {",
		"if next.Owner != was.Owner {\n" +
			"return linkRow{}, link.ErrUnavailable\n}\nif !next.Changed(was.Link) {"},
	{"a link is given that has perhaps left its place", "create.go",
		"if unsettled(r.Link, now) {", "if false {"},
	{"a link is given that is not marked as shared", "create.go",
		"case r.Shared || r.Owner", "case true || r.Owner"},
	{"a link has no expiry row", "create.go",
		"if !rows.end.IsZero() {\n\t\t\tc.ownExpiry, err",
		"if false {\n\t\t\tc.ownExpiry, err"},
	{"a link is not listed", "create.go",
		"if rows.listed.Row != \"\" {\n\t\t\tc.ownListed, err", "if false {\n\t\t\tc.ownListed, err"},
	{"rows go although the insert of their link may still arrive", "create.go",
		"if again {", "if again && false {"},
	{"a create that stood still has no guard", "create.go",
		"c.own.Link, c.own.Link, c.indexed())", "c.own.Link, c.own.Link, false)"},
	{"a guard waits for a slow expiry row", "index.go",
		"var both errgroup.Group\n\twrite :=", "var both errgroup.Group\n\tboth.SetLimit(1)\n\twrite :="},
	{"an insert into the index that is late has no guard", "create.go",
		"if !guarded && (late ||", "if false && (late ||"},
	{"a link that ends soon enters the index without a guard", "create.go",
		"if !guarded && c.s.endsSoon(c.own.Link) {", "if false {"},
	{"a chosen alias is not announced", "create.go",
		"if err := c.s.changes.announce(ctx, string(c.want.Name)); err != nil {",
		"if err := error(nil); err != nil {"},
	{"a link is not read again after its row of the index", "index.go",
		"now.etag != l.etag ||", "now.etag != l.etag && false ||"},
	{"a link that enters the index is not read again", "index.go",
		"moved, err := s.takeBack(ctx, l, added)", "moved, err := added == \"\", error(nil)"},
	{"a reaper does not look again at a link that was renewed", "reap.go",
		"if _, err := r.s.guardIn(ctx, lookAgainAfter, l, l); err != nil {",
		"if err := error(nil); l.Name == \"\" {"},
	{"a list drops the row of a link that may still arrive", "list.go",
		"now.Add(-strayAfter)", "now.Add(-guardAfter)"},
	{"a transfer takes no row of the former list", "edit.go",
		"left(e.s.owners.delete(ctx, m.listed))", "left(nil)"},
	{"a reaper takes a row of a list whatever it is", "reap.go",
		"_ = r.s.owners.delete(ctx, listed)",
		"if listed.ETag != \"\" {\nlisted.ETag = table.Any\n}\n_ = r.s.owners.delete(ctx, listed)"},
	{"a reaper takes the row of a link that came meanwhile", "reap.go",
		"if listed.ETag != \"\" && d.tomb == nil {", "if false {"},
	{"a later end is promised and not written", "create.go",
		"l, err := c.extend(ctx, r, seen)",
		"r, err = c.s.links.share(ctx, r)\nl := r.Link\nl.ExpiresAt = c.want.ExpiresAt"},
	{"a link that was extended at its end does not lead the index", "create.go",
		"added, late, err := c.s.index.put(ctx, l, seen)",
		"added, late, err := table.ETag(\"\"), false, error(nil)"},
	{"a list drops a row that was written anew", "list.go",
		"s.owners.rows.Delete(ctx, r.Key)",
		`s.owners.rows.Delete(ctx, table.Key{Partition: r.Partition, Row: r.Row, ETag: "*"})`},
	{"a transfer takes the row of its owner as it is", "edit.go",
		"if err := e.s.owners.put(ctx, after.listed, next.createID); err != nil {",
		"if _, err := e.s.owners.insert(ctx, after.listed, next.createID); err != nil && " +
			"!errors.Is(err, table.ErrExists) {"},
	{"a reaper takes a link off its list before it ends", "reap.go",
		"r.s.cache.forget(l.Name)\n\tif d.tomb",
		"_ = r.s.owners.delete(ctx, listed)\n\tif d.tomb"},
	{"a reaper drops the row of a link that may still arrive", "reap.go",
		"r.now.Add(link.MinTTL-guardAfter)", "r.now"},
	{"a reaper ends whatever has an expiry row that is due", "reap.go",
		"err == nil && !end.IsZero() && !end.After(r.cutoff); d.over", "err == nil; d.over"},
	{"a reaper leaves the row of the index", "reap.go",
		"if _, err := r.s.release(ctx, l, rows.index); err != nil {",
		"if err := error(nil); err != nil {"},
	{"rows are deleted whatever they are", "storage/table/store.go",
		"t.Write(ctx, w.Kind, w.Row, w.Read)",
		"t.Write(ctx, w.Kind, w.Row, Any)"},
	{"rows are replaced whatever they are", "storage/table/store.go",
		"t.Write(ctx, Replace, row, read)",
		"t.Write(ctx, Replace, row, Any)"},
	{"the link there is taken for the own one", "storage/table/store.go",
		"json.Unmarshal(data, &there) == nil && there.CreateID == id",
		"json.Unmarshal(data, &there) == nil"},
	{"the row of an end that a link kept outlives it", "reap.go",
		"r.dropKept(ctx, l)", "_ = r.dropKept"},
	{"openings keep an edit of one version from being made", "edit.go",
		"e.leave == nil && (e.once || tries == editTries)",
		"(e.once && e.leave == nil || tries == editTries)"},
	{"a repair forgets the end that a link kept", "internal/link/guard.go",
		"if l.EndKept.IsZero() {", "if true {"},
	{"a day counts each time that it is rolled up", "storage/counts/rollup.go",
		"(!known || d.totals.Through < g.day.String())", "true"},
	{"totals that were written beside the end of their link stay", "storage/counts/rollup.go",
		"return g.each(ctx, g.recheckLink)", "return nil"},
	{"totals stay of a link that is gone", "reap.go",
		"err = r.s.Clicks.Drop(ctx, l.Name)", "err = nil"},
	{"a killed reaper leaves totals", "reap.go",
		"if err := r.s.Clicks.Drop(ctx, a); err != nil {",
		"if err := error(nil); err != nil {"},
	{"what may be rolled up already counts again", "storage/counts/clicks.go",
		"if p.Sent() {", "if false {"},
	{"what was read before a change is cached", "cache.go",
		"r, err := c.table(ctx, a)\n",
		"r, err := c.table(ctx, a)\n\tforgotten = c.slot(a).Load()\n"},
	{"what is cached has no start", "cache.go",
		"l.StartsAt, l.GoneURL, l.Rules = e.seldom.startsAt, e.seldom.goneURL, e.seldom.rules",
		"l.GoneURL, l.Rules = e.seldom.goneURL, e.seldom.rules"},
	{"what is cached has no rules", "cache.go",
		"l.StartsAt, l.GoneURL, l.Rules = e.seldom.startsAt, e.seldom.goneURL, e.seldom.rules",
		"l.StartsAt, l.GoneURL = e.seldom.startsAt, e.seldom.goneURL"},
	{"what is cached is always right", "changes.go",
		"if c.config.ChangesEvery == 0 {\n\t\treturn true", "if true {\n\t\treturn true"},
	{"a revoked key is not announced", "keys.go",
		"if err := k.changes.announce(ctx, keyChange+hash); err != nil {",
		"if err := error(nil); err != nil {"},
	{"a key that was read while polls failed is trusted", "keys.go",
		"clear(k.cached)", "_ = k.cached"},
	{"nothing keeps the place of a revoked key", "keys.go",
		"_, err := k.rows.Put(ctx, table.Encode(e), table.Any)",
		"err := k.rows.Delete(ctx, table.Key{Partition: keysPartition, Row: hash,\n\t\t\t\tETag: table.Any})"},
	{"a create does not count the keys that came meanwhile", "keys.go",
		"k.permit(ctx, key.Owner, access.MaxKeys);", "error(nil);"},
	{"a create counts the keys only when its own is there", "keys.go",
		"k.permit(ctx, key.Owner, access.MaxKeys-1);", "error(nil);"},
	{"a batch of counts that failed counts as saved", "storage/counts/clicks.go",
		"p.Failed(c.config.Now())", "p.Saved(false)"},
	{"a block is not announced", "blocked.go",
		"return b.changes.announce(ctx, hostChange+string(h))", "return nil"},
	{"a block that was written late is not announced again", "blocked.go",
		"err = cmp.Or(err, announce(ctx))", "_ = ctx"},
	{"the copy of the hosts undoes what was blocked", "blocked.go",
		"b.replace(hosts, b.own)", "b.replace(hosts, nil)"},
	{"a write goes by stale hosts", "blocked.go",
		"current := b.known.Load() && !b.stale.Load() && !b.reading", "current := b.known.Load()"},
	{"a link to a blocked host is made", "create.go",
		"if err := s.Blocked.permit(ctx, link.Link{}, want); err != nil {",
		"if err := error(nil); err != nil {"},
	{"an edit leads to a blocked host", "edit.go",
		"if err := e.s.Blocked.permit(ctx, was.Link, next.Link); err != nil {",
		"if err := error(nil); err != nil {"},
	{"an opening is written whatever the link is by now", "open.go",
		"s.links.open(ctx, was.etag, next)", "s.links.open(ctx, table.Any, next)"},
	{"the expiry row of a last opening comes after it", "open.go",
		"if _, err := s.expiry.put(ctx, s.soon(guardAfter), a); err != nil {\n\t\t\treturn",
		"defer func() { _, _ = s.expiry.put(ctx, s.soon(guardAfter), a) }()\n" +
			"if err := error(nil); err != nil {\nreturn"},
	{"an opening goes by what is left", "open.go",
		"case err == nil && there.openID == next.openID:",
		"case err == nil && there.OpensLeft <= next.OpensLeft:"},
	{"a last opening that stood still writes no row again", "open.go",
		"if next.UsedUp() && until.stopped() {", "if false {"},
	{"a setting of openings is written again", "edit.go",
		"case changed && again && (e.once || sets):",
		"case changed && again && (e.once || sets && false):"},
	{"an edit loses the end that is kept", "rows_link.go",
		"linkOpenings: openingsOf(r),",
		"linkOpenings: openingsOf(linkRow{openID: r.openID, Link: link.Link{Guard: link.Guard{" +
			"MaxOpens: r.MaxOpens, OpensLeft: r.OpensLeft}}}),"},
	{"an edit of a version gives up when the link is opened", "edit.go",
		"e.leave == nil && (e.once || tries == editTries)",
		"e.once || e.leave == nil && tries == editTries"},
	{"a link that leads only so often is cached", "cache.go",
		"if dead || r.MaxOpens > 0 || r.Disabled", "if dead || r.Disabled"},
	{"a check overlooks that a used up link lives", "check_rows.go",
		"return l.UsedUp() && (", "return false && ("},
	{"an import is not announced", "import.go",
		"return concurrent.Safely(func() error { return s.changes.announce(ctx, names...) })",
		"_, _ = ctx, names\nreturn nil"},
	{"an import finds a link of another URL", "import.go",
		"case there.LongURL != want.LongURL, // a tombstone has none", "case false,"},
	{"an imported link without an owner does not enter the index", "import.go",
		"if err := c.s.claimGuarded(ctx, there.Link); err != nil {",
		"if err := error(nil); err != nil {"},
	{"of several links with one alias, any is imported first", "import.go",
		"\tseen[l.Name]++\n", ""},

	{"a claim token of another link is accepted", "functions/links.go",
		"return claimHash != \"\" && claimHash == l.ClaimHash",
		"return claimHash != \"\" && l.ClaimHash != \"\""},
	{"an owner sees the links of others", "functions/links.go",
		"case who.Admin,\n\t\twho.Is(l.Owner),", "case who.Admin,\n\t\twho.Owner != \"\","},
	{"If-Match is ignored", "functions/links.go",
		"if expected != nil && !expected.match(etagOf(l.Version)) {",
		"if expected != nil && !expected.match(etagOf(l.Version)) && false {"},
	{"a key that may only read writes", "functions/callers.go",
		"if c.who.ReadOnly && c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {",
		"if false {"},
	{"an owner acts for any other owner", "functions/callers.go",
		"case !who.Admin:\n\t\treturn \"\", foreignOwnerProblem",
		"case !who.Admin && false:\n\t\treturn \"\", foreignOwnerProblem"},
	{"owners see and revoke the keys of others", "functions/keys.go",
		"if who.Admin {\n\t\treturn nil", "if who.Owner != \"\" {\n\t\treturn nil"},
	{"no limit refuses anybody", "functions/limits.go",
		"if wait := l.Take(of, client); wait > 0 {",
		"if wait := l.Take(of, client); wait > 0 && false {"},
	{"a link to a blocked host leads there", "functions/redirect.go",
		"if s.Blocked.Has(ctx, to.LongURL) {", "if false {"},
	{"a link leads somewhere before its start", "functions/gone.go",
		"case link.StateScheduled:\n\t\treturn notStarted(l)",
		"case link.StateScheduled:\n\t\treturn nil"},
	{"a redirect by a rule may be kept", "functions/redirect.go",
		"l.Forward != 0 || len(l.Rules) > 0 {", "l.Forward != 0 {"},
	{"a rule leads to a blocked host", "storage/blocked.go",
		"if !slices.Contains(before, r.LongURL) {", "if slices.Contains(before, r.LongURL) {"},
	{"a link that was taken down sends people where its owner wants", "functions/redirect.go",
		"case l.GoneURL == \"\", l.Locked:", "case l.GoneURL == \"\":"},
	{"a link that has ended sends people to a blocked host", "functions/redirect.go",
		"case s.Blocked.Has(ctx, string(l.GoneURL)):", "case false:"},
	{"a prefetch counts as a click", "functions/redirect.go",
		"if r.Method == http.MethodGet && !prefetched(r.Header) {",
		"if r.Method == http.MethodGet {"},
	{"a list has deleted links", "functions/list.go",
		"case f.state == \"\" && state == link.StateDeleted,", "case false,"},
	{"a dry run imports", "functions/import.go",
		"DryRun:     dryRun,", "DryRun:     dryRun && false,"},
	{"an owner's file makes links of others", "functions/import.go",
		"KeepOwners: c.who.Admin && format.Own()", "KeepOwners: format.Own()"},

	{"the end alone says that a link is over", "internal/link/link.go",
		"return l.UsedUp() || !l.ExpiresAt", "return !l.ExpiresAt"},
	{"a link that is opened again keeps no end", "internal/link/guard.go",
		"l.ExpiresAt, l.EndKept = l.EndKept, time.Time{}", "l.EndKept = time.Time{}"},

	{"an owner's file takes links down", "internal/formats/import.go",
		"l.Locked = l.Locked && im.Admin", "_ = im.Admin"},
	{"a column of ends is dropped", "internal/formats/entry.go",
		"l.ExpiresAt, l.StartsAt = e.time(expires), e.time(starts)",
		"_, l.StartsAt = e.time(expires), e.time(starts)"},
	{"an end that cannot be read is none", "internal/formats/entry.go",
		"if !ok {\n\t\te.fail(\"%s is %s; a time",
		"if !ok && false {\n\t\te.fail(\"%s is %s; a time"},
	{"an archived link of a file comes in live", "internal/formats/csv.go",
		`disabled: {"archived"}, visits`, "visits"},
	{"a link that asks for a password leads everybody", "internal/formats/entry.go",
		"if !e.own && !nothing(e.texts[password]) {", "if false {"},
	{"a schedule with a rhythm leads people all the time", "internal/formats/targets.go",
		`cron != "" && cron != "* * * * *"`, `cron == "never"`},
	{"an import does not say whose links it takes", "internal/formats/import.go",
		"left |= leftOwner", "left |= 0"},
	{"each alias of an entry has all its clicks", "internal/formats/entry.go",
		"e.Total = clicks.Total{}", "_ = clicks.Total{}"},
	{"a title is a formula for a spreadsheet", "internal/formats/write.go",
		"if formula(s) {\n\t\treturn \"'\" + s", "if false {\n\t\treturn \"'\" + s"},

	{"nothing is broken in functions", "functions/links.go",
		"case who.Admin,\n\t\twho.Is(l.Owner),", "case who.Admin,\n\t\twho.Is(l.Owner),"},
	{"nothing is broken", "edit.go", "if !e.announced {", "if !e.announced {"}, // nothing may be found
}

// violated matches what a simulation prints of a violation, and failed what a failing test prints.
var (
	violated = regexp.MustCompile(`-simulation\.seed [0-9]+:`)
	failed   = regexp.MustCompile(`--- FAIL: Test\S+`)
)

// TestSabotage breaks the product in one way after the other. A fault in storage must be found by a
// simulation of at most 50,000 operations, or by the tests of storage, in which operations meet and
// die at every call. The first 5,000 operations find most faults. The tests come next, since they
// take less time than the other 45,000. A fault in another package must be found by its tests. A
// build that fails, tests that take too long and a missing emulator find nothing.
func TestSabotage(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			folder, base := filepath.Split(m.file)
			folder = filepath.Join("../../..", cmp.Or(folder, "storage"))
			file, err := filepath.Abs(filepath.Join(folder, base))
			if err != nil {
				t.Fatal(err)
			}
			source, err := os.ReadFile(file)
			if err != nil || strings.Count(string(source), m.from) != 1 {
				t.Fatalf("%s has no %q, or more of them: %v", m.file, m.from, err)
			}
			if !*sabotaged {
				t.Skip("takes minutes: make sabotage runs it")
			}
			broken := filepath.Join(t.TempDir(), base)
			overlay := filepath.Join(t.TempDir(), "overlay.json")
			data, _ := json.Marshal(map[string]any{"Replace": map[string]string{file: broken}})
			for name, text := range map[string][]byte{
				broken: []byte(strings.Replace(string(source), m.from, m.to, 1)), overlay: data} {
				if err := os.WriteFile(name, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// It returns the output. Found is the first match of sign in it, "" if nothing fails.
			run := func(sign *regexp.Regexp, args ...string) (out, found string) {
				args = append([]string{"test", "-vet=off", "-overlay", overlay}, args...)
				text, err := exec.Command("go", args...).CombinedOutput()
				if err == nil {
					return string(text), ""
				}
				// A test that fails may let another one hang.
				before, _, _ := strings.Cut(string(text), "panic: test timed out")
				if found = sign.FindString(before); found == "" {
					t.Fatalf("a failure that is no find: %v\n%s", err,
						text[max(0, len(text)-10_000):])
				}
				return string(text), found
			}
			simulate := func(seed, operations string) (out, found, by string) {
				out, found = run(violated, ".", "-run", "TestSimulation$", "-simulation.seed", seed,
					"-simulation.shrink=false", "-simulation.operations", operations, "-v")
				return out, found, "simulation, " +
					regexp.MustCompile(`[0-9]+ operations`).FindString(out)
			}
			var out, found, by string
			if m.file == base || filepath.Base(filepath.Dir(folder)) == "storage" {
				folder = "../../../storage"
				out, found, by = simulate("1", "5000")
				for _, tests := range []string{"Cross|AtAnyPoint|Renew|Stall|Late|Twice|RollUp|Forgets|" +
					"Conform|ImportIsTold|Always|Stopped|Former|Extended|Reapers|List|Secondary|Host|" +
					"Everywhere|Revoked|Starts|ReapDoes|Open|UsedUp|Kept|Setting",
					"EachPair"} { // alone, since it does not end when another one fails
					if found == "" {
						out, found = run(failed, folder, "-v", "-failfast", "-timeout", "4m",
							"-skip", "ComparesNoLonger", "-run", tests) // a busy machine makes it fail
						by = "the tests of storage"
					}
				}
				if found == "" {
					out, found, by = simulate("10001", "45000")
				}
			} else {
				out, found = run(failed, folder, "-short", "-failfast", "-timeout", "5m")
				by = "the tests of " + filepath.Base(folder)
			}
			switch {
			case found != "" && m.from == m.to:
				t.Errorf("nothing was broken, and %s found:\n%s", by, out)
			case found != "":
				t.Logf("found by %s: %s", by, found)
			case m.from != m.to:
				t.Error("not found")
			}
		})
	}
}
