package telemetry

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestOperationID(t *testing.T) {
	const (
		valid      = "00-" + traceID + "-" + parentID + "-01"
		invocation = "4c1e0d7a-5a55-4f0e-9d35-0f6d3b5f9f0c"
		drawn      = ""
	)
	for name, c := range map[string]struct {
		header http.Header
		hosted bool
		id     string // "": a random one
		parent string // "": none; behind the host, only a traceparent has one
	}{
		"nothing":     {nil, true, drawn, ""},
		"traceparent": {headers("traceparent", valid), true, traceID, parentID},
		"both": {headers("traceparent", valid,
			"X-Azure-Functions-InvocationId", invocation), true, traceID, parentID},
		"a later version": {headers("traceparent", "cc"+valid[2:]), true, traceID,
			parentID},
		"no such version": {headers("traceparent", "ff"+valid[2:]), true, drawn, ""},
		"capital letters": {headers("traceparent", strings.ToUpper(valid)), true,
			drawn, ""},
		"a zero trace": {headers("traceparent", "00-"+strings.Repeat("0", 32)+"-"+
			parentID+"-01"), true, drawn, ""},
		"a zero parent": {headers("traceparent", "00-"+traceID+"-"+
			strings.Repeat("0", 16)+"-01"), true, drawn, ""},
		"two of them": {headers("traceparent", valid, "traceparent", valid), true,
			drawn, ""},
		"too long": {headers("traceparent", valid+"-what-the-future-brings"),
			true, drawn, ""},
		"a script": {headers("traceparent",
			"00-<script>alert(1)</script>aaaaaaaaa-"+parentID+"-01"), true, drawn, ""},
		"malformed, and an invocation": {headers("traceparent", "x",
			"X-Azure-Functions-InvocationId", invocation), true, invocation, ""},
		"an invocation": {headers("X-Azure-Functions-InvocationId",
			strings.ToUpper(invocation)), true, invocation, ""},
		"a forged one first": {headers("X-Azure-Functions-InvocationId", "' or 1=1",
			"X-Azure-Functions-InvocationId", invocation), true, invocation, ""},
		"a forged one on its line": {headers("X-Azure-Functions-InvocationId",
			"11111111-1111-1111-1111-111111111111, "+invocation), true, invocation, ""},
		"a malformed one": {headers("X-Azure-Functions-InvocationId", invocation[1:]+
			"x"), true, drawn, ""},
		"without a host it is forged": {headers("X-Azure-Functions-InvocationId", invocation),
			false, drawn, "span"},
		"alone": {headers("traceparent", valid), false, traceID, "span"},
	} {
		o := Begin(context.Background(), "f", c.header, c.hosted)
		got := o.ID()
		if got != o.ID() || c.id != drawn && got != c.id || c.id == drawn &&
			(len(got) != 32 || !isHex(got)) {
			t.Errorf("%s: %q, want %q", name, got, c.id)
		}
		parent := o.parent()
		if c.parent == "span" && (len(parent) != 16 || parent == parentID) || c.parent != "span" &&
			parent != c.parent {
			t.Errorf("%s: parent %q, want %q", name, parent, c.parent)
		}
	}
	one, other := Begin(context.Background(), "f", nil, false), Begin(context.Background(), "f",
		nil, false)
	if one.ID() == other.ID() || one.parent() == other.parent() {
		t.Error("two operations have one id")
	}
}

func TestOperationIsItsContext(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, "v"),
		time.Hour)
	o := Begin(ctx, "f", nil, false)
	inner := context.WithoutCancel(context.WithValue(&o, key{}, "w"))
	if operationOf(inner) != &o || o.Value(key{}) != "v" || inner.Value(key{}) != "w" {
		t.Error("values got lost")
	}
	cancel()
	if o.Err() == nil || inner.Err() != nil {
		t.Error("the end of the context got lost")
	}
	if of := operationOf(context.Background()); of.ID() == "" {
		t.Error("a context without an operation has no ID")
	}
}

// The IDs consist of hexadecimal digits and hyphens, and are short, whatever a client sends.
func FuzzOperationID(f *testing.F) {
	f.Add("00-"+traceID+"-"+parentID+"-01", "4c1e0d7a-5a55-4f0e-9d35-0f6d3b5f9f0c")
	f.Add("", "a, b")
	form := regexp.MustCompile(`^[0-9a-f-]{32,36}$`)
	f.Fuzz(func(t *testing.T, traceparent, invocation string) {
		o := Begin(context.Background(), "f", headers("traceparent", traceparent,
			"X-Azure-Functions-InvocationId", invocation), true)
		if id := o.ID(); !form.MatchString(id) {
			t.Errorf("id %q", id)
		}
		if parent := o.parent(); parent != "" && (len(parent) != 16 || !isHex(parent)) {
			t.Errorf("parent %q", parent)
		}
		if id := o.Invocation(); id != "" && (len(id) != 36 || !form.MatchString(id)) {
			t.Errorf("invocation %q", id)
		}
	})
}
