package telemetry

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strings"
)

// Operation is what belongs together in telemetry: a request, a run of the reaper, the start of the process. It is the
// context of whatever is done for it, and is what the storage calls made with that context are found under.
//
// It is made for each request, so making one costs next to nothing: what the headers say is read when it is needed.
type Operation struct {
	context.Context
	// Name is the name of the function.
	Name   string
	header http.Header // of the request; nil where there is none
	hosted bool

	// drawn is at random. It is the id of the request as the parent of what is done for it, where it is this process that
	// reports it; and with the one of the process before it, it is the id of the operation where the headers give none.
	drawn uint64
}

// process is the first half of the ids that this process draws.
var process = rand.Uint64()

// Begin makes the operation of a request, whose header may be nil. Hosted says that it comes from the Functions host:
// then, and only then, the host's id of the invocation is believed.
func Begin(ctx context.Context, name string, header http.Header, hosted bool) Operation {
	return Operation{Context: ctx, Name: name, header: header, hosted: hosted, drawn: rand.Uint64()}
}

type operationKey struct{}

// Value gives the operation itself to those who ask for it, and what its context holds to others.
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

// ID returns the id of the operation: the trace id of a valid traceparent, else the host's id of the invocation, else
// one that was drawn at its beginning. It is made of hexadecimal digits and hyphens, whatever a client sends.
func (o *Operation) ID() string {
	var b [idSize]byte
	return string(o.appendID(b[:0]))
}

// idSize is the length of the longest id.
const idSize = 36

func (o *Operation) appendID(b []byte) []byte {
	if trace, _, ok := o.traceparent(); ok {
		return append(b, trace...)
	}
	if id := o.Invocation(); id != "" {
		return append(b, id...)
	}
	return appendHex(appendHex(b, process), o.drawn)
}

// parent returns the id of the request, as the parent of what is done for it. Behind the host, whose request it is, that
// is what the traceparent says, or "".
func (o *Operation) parent() string {
	if o.hosted {
		_, parent, _ := o.traceparent()
		return parent
	}
	return string(appendHex(nil, o.drawn))
}

// traceparent reads the header of that name as https://www.w3.org/TR/trace-context has it. The host copies a client's
// own, so nothing but its form can be relied on: a forged one puts an operation beside others of the same id, no more.
func (o *Operation) traceparent() (trace, parent string, ok bool) {
	all := o.header["Traceparent"]
	if len(all) != 1 || len(all[0]) != 55 {
		return "", "", false
	}
	const zero = "00000000000000000000000000000000"
	h := all[0]
	version, trace, parent, flags := h[:2], h[3:35], h[36:52], h[53:]
	if h[2] != '-' || h[35] != '-' || h[52] != '-' || version == "ff" || trace == zero || parent == zero[:16] ||
		!isHex(version) || !isHex(trace) || !isHex(parent) || !isHex(flags) {
		return "", "", false
	}
	return trace, parent, true
}

// Invocation returns the Functions host's id of the invocation, or "". The host's own stands last; an older host puts it
// on the line of one that the client forged.
func (o *Operation) Invocation() string {
	all := o.header["X-Azure-Functions-Invocationid"]
	if !o.hosted || len(all) == 0 {
		return ""
	}
	id := all[len(all)-1]
	id = strings.ToLower(strings.TrimSpace(id[strings.LastIndexByte(id, ',')+1:]))
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' ||
		!isHex(id[:8]) || !isHex(id[9:13]) || !isHex(id[14:18]) || !isHex(id[19:23]) || !isHex(id[24:]) {
		return ""
	}
	return strings.Clone(id) // and not the whole of a header that a client may have filled
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func appendHex(b []byte, n uint64) []byte {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], n)
	return hex.AppendEncode(b, raw[:])
}

// sampled says whether an operation is the one of so many that is kept. It goes by what was drawn, and not by an id that
// a client can choose: with that, a few forged requests could weigh as much as all others.
func (o *Operation) sampled(oneOf uint64) bool { return o.drawn%oneOf == 0 }
