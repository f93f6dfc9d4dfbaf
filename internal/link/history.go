package link

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf16"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Event is what was done to a link.
type Event string

// The events of a history.
const (
	Edited      Event = "edited"
	Deleted     Event = "deleted"
	Restored    Event = "restored"
	Claimed     Event = "claimed"
	Transferred Event = "transferred" // perhaps with other edits
)

// Change is one change of a link.
type Change struct {
	At   time.Time
	By   string // see Actor
	What Event
	// Before is a JSON object: the former values of the members, named as in the API, that changed.
	// It leaves out updatedAtUtc, shared and locked. It is empty if the values are too long for a
	// row, which only other programs write.
	Before jsontext.Value
}

// History is what was done to a link, the newest change first. It is bounded, because it is kept in
// the link's row: the oldest changes go.
type History []Change

const (
	maxChanges = 50
	// maxHistory is the length of the JSON in UTF-16 code units. A property of a table holds
	// 32,768.
	maxHistory = 30_000
)

// with returns the history with one more change.
func (h History) with(c Change) History {
	h = append(History{c}, h...)
	h = h[:min(len(h), maxChanges)]
	for len(utf16.Encode([]rune(h.JSON()))) > maxHistory {
		if len(h) == 1 { // a value that another program wrote
			h[0].Before = jsontext.Value("{}")
			break
		}
		h = h[:len(h)-1]
	}
	return h
}

// JSON returns the history as it is stored, and "" if there is none: a list of changes, each
// [at, by, what, {member: value before}].
func (h History) JSON() string {
	if len(h) == 0 {
		return ""
	}
	list := make([][4]any, len(h))
	for i, c := range h {
		list[i] = [4]any{c.At, orNull(c.By), c.What, c.Before}
	}
	return string(toJSON(list))
}

// ParseHistory reads what JSON returned. Another program may have written the text, so ParseHistory
// leaves out what it cannot read.
func ParseHistory(text string) (h History) {
	if text == "" { // as of most links
		return nil
	}
	invalid := jsontext.AllowInvalidUTF8(true)
	var list []jsontext.Value
	_ = json.Unmarshal([]byte(text), &list, invalid)
	for _, item := range list {
		var part [4]jsontext.Value
		var c Change
		if json.Unmarshal(item, &part, invalid) == nil && part[3].Kind() == '{' &&
			json.Unmarshal(part[0], &c.At) == nil &&
			json.Unmarshal(part[1], &c.By, invalid) == nil &&
			json.Unmarshal(part[2], &c.What, invalid) == nil {
			c.At, c.Before = c.At.UTC(), part[3]
			// The offset of a time may move it into a year that cannot be written again.
			if year := c.At.Year(); 0 <= year && year <= 9999 {
				h = append(h, c)
			}
		}
	}
	return h
}

// toJSON encodes what always encodes. A link may have invalid UTF-8 if another program wrote it.
func toJSON(v any) jsontext.Value {
	data, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err)
	}
	return data
}

// before returns the values of the members that differ in next, as Change has them.
func (l Link) before(next Link) map[string]any {
	was := map[string]any{}
	set := func(member string, changed bool, value any) {
		if changed {
			was[member] = value
		}
	}
	set("longUrl", l.LongURL != next.LongURL, l.LongURL)
	set("expiresAtUtc", !l.ExpiresAt.Equal(next.ExpiresAt), timeOrNull(l.ExpiresAt))
	set("startsAtUtc", !l.StartsAt.Equal(next.StartsAt), timeOrNull(l.StartsAt))
	set("goneUrl", l.GoneURL != next.GoneURL, orNull(string(l.GoneURL)))
	set("statusCode", l.StatusCode != next.StatusCode, cmp.Or(l.StatusCode, DefaultStatusCode))
	set("forward", l.Forward != next.Forward, l.Forward.Names())
	set("rules", !sameRules(l.Rules, next.Rules), append([]TargetRule{}, l.Rules...))
	set("password", l.Password != next.Password, l.Password != "")
	set("maxOpens", l.MaxOpens != next.MaxOpens || l.OpensLeft != next.OpensLeft,
		orNull(l.MaxOpens))
	set("disabled", l.Disabled != next.Disabled, l.Disabled)
	set("title", l.Title != next.Title, orNull(l.Title))
	set("tags", !slices.Equal(l.Tags, next.Tags), append([]string{}, l.Tags...))
	set("owner", l.Owner != next.Owner, orNull(l.Owner))
	set("deletedAtUtc", !l.DeletedAt.Equal(next.DeletedAt), timeOrNull(l.DeletedAt))
	return was
}

func orNull[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	return v
}

func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}

// changed returns the edited link, with now as the time of its update and one more change in its
// history, or was if nothing has changed.
func changed(was, edited Link, by Actor, what Event, now time.Time) Link {
	if !edited.Changed(was) {
		return was
	}
	edited.UpdatedAt = now.UTC().Truncate(time.Second)
	edited.History = was.History.with(
		Change{edited.UpdatedAt, by.By, what, toJSON(was.before(edited))})
	return edited
}
