//go:build unix

package chaos

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// request is an operation on one URL's link. Times are those of the clock of the node that got it: the clock cannot
// have been earlier than from, nor later than until, while the request was under way.
type request struct {
	url         string
	disable     bool // by another hand, in the table; else it is a shorten
	alias       string
	ttl         time.Duration
	from, until time.Time
}

// response is what came back. A status that is not 200, 201 or 403 tells nothing: the request may have had its effect,
// or may have it yet.
type response struct {
	status    int
	alias     string
	expiresAt time.Time
}

func (r response) known() bool { return r.status == 200 || r.status == 201 || r.status == 403 }

// urlState is what a model of one URL knows of its link. The zero urlState is a URL that has none.
type urlState struct {
	alias string // "?": one that was made by a request without a response
	// The link's expiry is not before earliest, and not after latest; they differ where the alias is not known.
	earliest, latest int64
	disabled         bool
}

// urlModel says what a URL's one live link may do: there is one at a time, its alias stays until it expires, and a 201
// comes only where there was none.
var urlModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byURL := map[string][]porcupine.Operation{}
		for _, o := range history {
			url := o.Input.(request).url
			byURL[url] = append(byURL[url], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byURL {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{urlState{}} },
	Step: func(state, input, output any) []any {
		return step(state.(urlState), input.(request), output.(response))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

func step(s urlState, in request, out response) []any {
	if in.disable {
		if s.alias == in.alias || s.alias == "?" {
			disabled := s
			disabled.disabled = true
			return []any{disabled, s} // s where the link had gone
		}
		return []any{s}
	}
	mayHaveExpired := s.alias == "" || s.earliest <= in.until.Unix()
	switch {
	case !out.known():
		next := []any{s}
		if mayHaveExpired {
			next = append(next, urlState{alias: "?", earliest: in.from.Add(in.ttl).Unix(), latest: in.until.Add(in.ttl).Unix()})
		}
		return next
	case out.status == 201:
		at := out.expiresAt.Unix()
		if !mayHaveExpired || at < in.from.Add(in.ttl).Unix() || at > in.until.Add(in.ttl).Unix() {
			return nil
		}
		return []any{urlState{alias: out.alias, earliest: at, latest: at}}
	}
	mayLive := s.alias != "" && s.latest > in.from.Unix()
	if !mayLive {
		return nil
	}
	if out.status == 403 {
		if s.disabled {
			return []any{s}
		}
		return nil
	}
	// 200, also for a link that was disabled while it was cached.
	at := out.expiresAt.Unix()
	if s.alias == "?" && s.earliest <= at && at <= s.latest || s.alias == out.alias && s.earliest == at {
		return []any{urlState{alias: out.alias, earliest: at, latest: at, disabled: s.disabled}}
	}
	return nil
}
