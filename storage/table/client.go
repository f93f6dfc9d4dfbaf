package table

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"

	"tiney/internal/telemetry"
)

// Timeout is the longest that a try of a call takes.
const Timeout = 5 * time.Second

// firstTryTimeout is the limit of a call's first try. Later ones get all that is left of the call's
// time: a network that has lost the first try is given another chance, and a service that is merely
// slow, such as one that takes three seconds, still gets to respond.
const firstTryTimeout = 1200 * time.Millisecond

// httpClient is one pool of connections for all tables and the lock.
//
// An instance on the Consumption plan has 600 outbound connections; one storage endpoint may take
// less than half of them, and as many are kept open between bursts. The timeouts here cover what a
// context does not end: with them, a network that drops packets costs one try and not a whole
// request.
var httpClient = &http.Client{
	Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: time.Second,
			KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   2 * time.Second,
		ResponseHeaderTimeout: 10 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxConnsPerHost:       256,
		MaxIdleConnsPerHost:   256,
		// Azure Storage speaks HTTP/1.1 only, where a try that times out closes its connection.
	},
	// A storage service never redirects; to follow one could carry a token elsewhere.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// ClientOptions makes tries fit into Timeout: three if they fail fast, two if they get no response.
// The pause between them is short, because a connection that was refused or dropped mostly works at
// the next try. The SDK's defaults (pauses of 0.8 s, 1.6 s, … and no limit per try) would spend
// Timeout on a single frozen try. A Retry-After beyond MaxRetryDelay ends the tries at once.
func ClientOptions(kind string, sender *telemetry.Sender) policy.ClientOptions {
	return policy.ClientOptions{
		Transport: httpClient,
		Telemetry: policy.TelemetryOptions{ApplicationID: "tiney"},
		Retry: policy.RetryOptions{
			MaxRetries:    2,
			RetryDelay:    50 * time.Millisecond,
			MaxRetryDelay: 200 * time.Millisecond,
			// includes getting a token; in later tries, tryPolicy replaces it for the request
			TryTimeout: firstTryTimeout,
		},
		PerCallPolicies: []policy.Policy{tokenErrorPolicy{kind, sender}, batchPolicy{},
			bodyPolicy{}, selectPolicy{}},
		PerRetryPolicies: []policy.Policy{tryPolicy{kind, sender}},
	}
}

// Call is one call to storage.
type Call struct {
	ctx   context.Context // of all its tries together
	name  string          // operation, and table if there is one
	tries int             // how often it was sent
}

type callKey struct{}

// WithCall names the one call that is made with the context it returns.
func WithCall(ctx context.Context, name string) (context.Context, *Call) {
	c := &Call{name: name}
	c.ctx = context.WithValue(ctx, callKey{}, c)
	return c.ctx, c
}

func callOf(req *policy.Request) *Call {
	ctx := req.Raw().Context()
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		return c
	}
	return &Call{ctx: ctx, name: req.Raw().Method}
}

// tryPolicy sees each try of each call: it counts them, sets their time limits and reports them as
// dependencies.
type tryPolicy struct {
	kind   string            // of the dependencies
	sender *telemetry.Sender // nil disables reports
}

func (p tryPolicy) Do(req *policy.Request) (*http.Response, error) {
	c := callOf(req)
	if c.tries++; c.tries > 1 {
		ctx, cancel := context.WithTimeout(c.ctx, Timeout)
		defer cancel() // the body of the response has been read by then
		req = req.WithContext(ctx)
	}
	if p.sender == nil {
		return req.Next()
	}
	start := time.Now()
	resp, err := req.Next()
	d := telemetry.Dependency{Type: p.kind, Target: req.Raw().URL.Hostname(), Name: c.name,
		Try: c.tries, Start: start, Duration: time.Since(start)}
	d.ResultCode, d.ErrorCode, d.Success = outcome(req.Raw().Context(), resp, err)
	p.sender.Dependency(req.Raw().Context(), d)
	return resp, err
}

type selectKey struct{}

// withSelect has the point read that is made with the context it returns ask for these properties
// only, for which the SDK has no option.
func withSelect(ctx context.Context, properties []string) context.Context {
	return context.WithValue(ctx, selectKey{}, strings.Join(properties, ","))
}

// selectPolicy adds them to the URL.
type selectPolicy struct{}

func (selectPolicy) Do(req *policy.Request) (*http.Response, error) {
	if properties, ok := req.Raw().Context().Value(selectKey{}).(string); ok {
		u := req.Raw().URL // the names of properties need no escapes, and the SDK has no query
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&$select="+properties, "&")
	}
	return req.Next()
}

type bodyKey struct{}

// withBody has the call that is made with the context it returns send this body.
func withBody(ctx context.Context, body []byte) context.Context {
	return context.WithValue(ctx, bodyKey{}, body)
}

// bodyPolicy sends a row as it is: the SDK's own encoding goes through a map, as its decoding does.
type bodyPolicy struct{}

func (bodyPolicy) Do(req *policy.Request) (*http.Response, error) {
	if body, ok := req.Raw().Context().Value(bodyKey{}).([]byte); ok {
		if err := req.SetBody(streaming.NopCloser(bytes.NewReader(body)),
			"application/json"); err != nil {
			return nil, err
		}
	}
	return req.Next()
}

// tokenErrorPolicy reports calls that fail before their first try, because there is no token for
// them.
type tokenErrorPolicy tryPolicy

func (p tokenErrorPolicy) Do(req *policy.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := req.Next()
	if c := callOf(req); err != nil && c.tries == 0 && p.sender != nil {
		code, _, _ := outcome(req.Raw().Context(), nil, err)
		if code == telemetry.ResultUnreachable {
			code = telemetry.ResultNoToken
		}
		p.sender.Dependency(req.Raw().Context(), telemetry.Dependency{
			Type: p.kind, Target: req.Raw().URL.Hostname(), Name: c.name, Try: 1, ResultCode: code,
			Start: start, Duration: time.Since(start),
		})
	}
	return resp, err
}

// outcome returns the result of a try. An error that the caller expects, such as that there is no
// such row, counts as success.
func outcome(ctx context.Context, resp *http.Response, err error) (code, errorCode string,
	success bool) {
	switch {
	case errors.Is(err, context.Canceled):
		return telemetry.ResultCanceled, "", false
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		return telemetry.ResultTimeout, "", false
	case err != nil:
		return telemetry.ResultUnreachable, "", false
	}
	code = strconv.Itoa(resp.StatusCode)
	if b, ok := batchOf(ctx); ok && resp.StatusCode < 300 {
		status, errorCode, applied := b.outcome(resp)
		return strconv.Itoa(status), errorCode, applied || slices.Contains(expectedCodes, errorCode)
	}
	if resp.StatusCode < 300 {
		return code, "", true
	}
	// The SDK's own error has the code too, but formats the whole response for its text.
	errorCode = resp.Header.Get("x-ms-error-code")
	if errorCode == "" {
		var body struct {
			Error struct{ Code string } `json:"odata.error"`
		}
		if text, err := runtime.Payload(resp); err == nil {
			_ = json.Unmarshal(text, &body) // a proxy's response has no code
		}
		errorCode = body.Error.Code
	}
	if !errorCodeForm().MatchString(errorCode) {
		errorCode = ""
	}
	return code, errorCode, slices.Contains(expectedCodes, errorCode)
}

// errorCodeForm keeps out of telemetry what a proxy may have written. It and partCode are compiled
// on first use: both together take longer than all else that this package does before the process
// listens.
var errorCodeForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)
})

// expectedCodes are the error codes that count as success: a row, table or lock is not there or is
// there already, a row has changed, the lock is held by another process.
var expectedCodes = []string{
	"ResourceNotFound", "EntityNotFound", "TableNotFound", "TableBeingDeleted",
	"ContainerNotFound", "BlobNotFound",
	"EntityAlreadyExists", "TableAlreadyExists", "ContainerAlreadyExists", "BlobAlreadyExists",
	"UpdateConditionNotSatisfied", "ConditionNotMet",
	"LeaseAlreadyPresent", "LeaseIdMissing",
}
