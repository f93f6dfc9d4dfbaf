package telemetry

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"
)

// Operation groups what belongs together in telemetry: a request, a run of the reaper, or the start
// of the process. It is the context of the work done for it. Storage calls that are made with that
// context are reported under its ID.
//
// Each request makes one, so making one is cheap: the headers are parsed only when they are needed.
type Operation struct {
	context.Context
	// Name is the name of the function.
	Name   string
	header http.Header // the request's; nil if there is none
	hosted bool

	// spanID is random. If the headers carry no trace ID, process followed by spanID is the trace
	// ID.
	spanID uint64
}

// process is the first half of the trace IDs that this process makes.
var process = rand.Uint64()

// Begin makes the operation of a request, whose header may be nil. hosted says that the Functions
// host is in front. Only then is the host's invocation ID trusted.
func Begin(ctx context.Context, name string, header http.Header, hosted bool) Operation {
	return Operation{Context: ctx, Name: name, header: header, hosted: hosted,
		spanID: rand.Uint64()}
}

type operationKey struct{}

// Value returns the operation for its own key, and the values of its context for others.
func (o *Operation) Value(key any) any {
	if key == (operationKey{}) {
		return o
	}
	return o.Context.Value(key)
}

// operationOf returns the operation that ctx belongs to, or a new one without a name.
func operationOf(ctx context.Context) *Operation {
	if o, ok := ctx.Value(operationKey{}).(*Operation); ok {
		return o
	}
	o := Begin(ctx, "", nil, false)
	return &o
}

type eachCallKey struct{}

// EachCall returns a context whose calls are sampled one by one, and not with their operation. It
// is for an operation of so many calls that all of them would be a flood, and none a gap.
func EachCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, eachCallKey{}, true)
}

// ID returns the operation's ID. That is the trace ID of a valid traceparent; without one, the
// host's invocation ID; and without that, a random ID. Whatever a client sends, it consists of
// hexadecimal digits and hyphens.
func (o *Operation) ID() string {
	var b [idSize]byte
	return string(o.appendID(b[:0]))
}

// idSize is the length of the longest ID.
const idSize = 36

func (o *Operation) appendID(b []byte) []byte {
	if trace, _, ok := o.traceparent(); ok {
		return append(b, trace...)
	}
	if id := o.Invocation(); id != "" {
		return append(b, id...)
	}
	return appendHex(appendHex(b, process), o.spanID)
}

// parent returns the parent ID of the work done for the request. The host, if there is one, reports
// the request, so the parent ID is then the one of the traceparent, or "".
func (o *Operation) parent() string {
	if o.hosted {
		_, parent, _ := o.traceparent()
		return parent
	}
	return string(appendHex(nil, o.spanID))
}

// traceparent parses the header of that name (https://www.w3.org/TR/trace-context). The host copies
// the header of a client, so only its form can be relied on. A forged header only groups an
// operation with others of the same ID.
func (o *Operation) traceparent() (trace, parent string, ok bool) {
	all := o.header["Traceparent"]
	if len(all) != 1 || len(all[0]) != 55 {
		return "", "", false
	}
	const zero = "00000000000000000000000000000000"
	h := all[0]
	version, trace, parent, flags := h[:2], h[3:35], h[36:52], h[53:]
	if h[2] != '-' || h[35] != '-' || h[52] != '-' || version == "ff" || trace == zero ||
		parent == zero[:16] ||
		!isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags) {
		return "", "", false
	}
	return trace, parent, true
}

// Invocation returns the Functions host's invocation ID, or "". The host's own ID comes last: a
// host that forwards requests appends it to the line of an ID that the client forged.
func (o *Operation) Invocation() string {
	all := o.header["X-Azure-Functions-Invocationid"]
	if !o.hosted || len(all) == 0 {
		return ""
	}
	id := all[len(all)-1]
	id = strings.ToLower(strings.TrimSpace(id[strings.LastIndexByte(id, ',')+1:]))
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' ||
		!isHex(id[:8]) || !isHex(id[9:13]) || !isHex(id[14:18]) || !isHex(id[19:23]) ||
		!isHex(id[24:]) {
		return ""
	}
	return strings.Clone(id) // without it, a large header of a client would stay in memory
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

func appendHex(b []byte, n uint64) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], n)
	return hex.AppendEncode(b, raw[:])
}

// sampled reports whether the operation is the one in oneOf that is kept. It uses the random span
// ID. With an ID that a client can choose, a few forged requests could weigh as much as all others.
func (o *Operation) sampled(oneOf uint64) bool { return o.spanID%oneOf == 0 }
