package main

import (
	"strings"
	"testing"
)

// A target holds for the rows that it names, and a row that it names and that has no figure has not met it.
func TestTargetsOfSomeRows(t *testing.T) {
	r := new(results)
	r.add("slow", "", values{"req/s": 10})
	r.add("theirs", "", values{"req/s": 100})
	r.add("ours", "theirs", values{"req/s": 98})
	r.add("silent", "theirs", values{})
	r.add("other", "theirs", values{"req/s": 1})
	c := column{head: "to theirs", value: "req/s", digits: 2, of: ratio, atLeast: 0.95}
	for _, test := range []struct {
		rows []string
		want string
	}{
		{nil, "- to theirs, at least 0.95: missed by other (0.01)\n"},
		{[]string{"ours"}, "- to theirs (ours), at least 0.95: met\n"},
		{[]string{"ours", "other"}, "- to theirs (ours; other), at least 0.95: missed by other (0.01)\n"},
		{[]string{"ours", "silent"}, "- to theirs (ours; silent), at least 0.95: missed by silent (not measured)\n"},
		{[]string{"absent"}, "- to theirs (absent), at least 0.95: missed by absent (not measured)\n"},
	} {
		c.rows = test.rows
		got := r.table([]column{c})
		if !strings.HasSuffix(got, "\n\n"+test.want) {
			t.Errorf("for %q it says\n%s\nand should end with %q", test.rows, got, test.want)
		}
		if !strings.HasPrefix(got, "| | to theirs |\n") {
			t.Errorf("for %q the head of the column is another one:\n%s", test.rows, got)
		}
	}
}
