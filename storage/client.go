package storage

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
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"tiney/telemetry"
)

// Timeout is the longest that a request waits for storage, all calls and retries of it together.
const Timeout = 5 * time.Second

// httpClient is one pool of connections for all tables and the lock.
//
// An instance on the Consumption plan has 600 outbound connections; one host is given less than half of them, and as
// many as that are kept open between bursts. The time limits here are for what a context does not end: with them, a
// network that swallows packets costs one try, not a whole request.
var httpClient = &http.Client{
	Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   2 * time.Second,
		ResponseHeaderTimeout: 10 * time.Second,
		IdleConnTimeout:       90 * time.Second,
		MaxConnsPerHost:       256,
		MaxIdleConnsPerHost:   256,
		// HTTP/1.1 is all that Azure Storage speaks, and there a try that runs out of time takes its connection with it.
	},
	// A storage service never redirects; following one could carry a token elsewhere.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// clientOptions makes three tries fit well into Timeout: 1.4 s each, and a pause that is short because a refused
// connection or a dropped one is mostly gone at the next try. The SDK's defaults (0.8 s, 1.6 s, … and no limit for a
// try) would spend Timeout on a single frozen one. A Retry-After beyond MaxRetryDelay ends the tries at once.
func clientOptions(kind string, sender *telemetry.Sender) policy.ClientOptions {
	return policy.ClientOptions{
		Transport: httpClient,
		Telemetry: policy.TelemetryOptions{ApplicationID: "tiney"},
		Retry: policy.RetryOptions{
			MaxRetries:    2,
			RetryDelay:    50 * time.Millisecond,
			MaxRetryDelay: 200 * time.Millisecond,
			TryTimeout:    1400 * time.Millisecond,
		},
		PerCallPolicies:  []policy.Policy{unsent{kind, sender}},
		PerRetryPolicies: []policy.Policy{watch{kind, sender}},
	}
}

// call is one call to storage.
type call struct {
	name  string // of the operation, and of the table where there is one
	tries int    // how often it was sent
}

type callKey struct{}

// withCall gives a name to the one call that is made with the context it returns.
func withCall(ctx context.Context, name string) (context.Context, *call) {
	c := &call{name: name}
	return context.WithValue(ctx, callKey{}, c), c
}

// watch is the policy that sees each try of each call: it counts them, and reports them as dependencies.
type watch struct {
	kind   string // of the dependencies
	sender *telemetry.Sender
}

func (w watch) Do(req *policy.Request) (*http.Response, error) {
	c := callOf(req)
	c.tries++
	if w.sender == nil {
		return req.Next()
	}
	start := time.Now()
	answer, err := req.Next()
	d := telemetry.Dependency{Type: w.kind, Target: req.Raw().URL.Hostname(), Name: c.name, Try: c.tries, Start: start, Duration: time.Since(start)}
	d.ResultCode, d.ErrorCode, d.Success = outcome(answer, err)
	w.sender.Dependency(req.Raw().Context(), d)
	return answer, err
}

func callOf(req *policy.Request) *call {
	if c, ok := req.Raw().Context().Value(callKey{}).(*call); ok {
		return c
	}
	return &call{name: req.Raw().Method}
}

// unsent is the policy that sees calls which fail before their first try, since there is no token for them, and reports
// those.
type unsent watch

func (u unsent) Do(req *policy.Request) (*http.Response, error) {
	start := time.Now()
	answer, err := req.Next()
	if c := callOf(req); err != nil && c.tries == 0 && u.sender != nil {
		code, _, _ := outcome(nil, err)
		if code == telemetry.ResultUnreachable {
			code = telemetry.ResultNoToken
		}
		u.sender.Dependency(req.Raw().Context(), telemetry.Dependency{
			Type: u.kind, Target: req.Raw().URL.Hostname(), Name: c.name, Try: 1, ResultCode: code, Start: start, Duration: time.Since(start),
		})
	}
	return answer, err
}

// outcome says what came of a try. An answer that the code has asked for, such as that there is no such row, is a
// success.
func outcome(answer *http.Response, err error) (code, errorCode string, success bool) {
	switch {
	case errors.Is(err, context.Canceled):
		return telemetry.ResultCanceled, "", false
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		return telemetry.ResultTimeout, "", false
	case err != nil:
		return telemetry.ResultUnreachable, "", false
	}
	code = strconv.Itoa(answer.StatusCode)
	if answer.StatusCode == http.StatusAccepted {
		status, errorCode, applied := ofBatch(answer)
		return strconv.Itoa(status), errorCode, applied || slices.Contains(expectedCodes, errorCode)
	}
	if answer.StatusCode < 300 {
		return code, "", true
	}
	// The SDK's own error would do, and would write the whole answer out for its log.
	errorCode = answer.Header.Get("x-ms-error-code")
	if errorCode == "" {
		var body struct {
			Error struct{ Code string } `json:"odata.error"`
		}
		if text, err := runtime.Payload(answer); err == nil {
			_ = json.Unmarshal(text, &body) // an answer from elsewhere has no code
		}
		errorCode = body.Error.Code
	}
	if !errorCodeForm().MatchString(errorCode) {
		errorCode = ""
	}
	return code, errorCode, slices.Contains(expectedCodes, errorCode)
}

// ofBatch says what came of a batch. Its answer is a 202 in any case, with an answer for each row in it, or for the one
// that it failed for: then status and code are of that row.
func ofBatch(answer *http.Response) (status int, errorCode string, applied bool) {
	said, _ := runtime.Payload(answer) // nothing of it is as good as an error here
	if failed := batchFailure().FindSubmatch(said); failed != nil {
		status, _ = strconv.Atoi(string(failed[1]))
		return status, string(failed[2]), false
	}
	return answer.StatusCode, "", bytes.Contains(said, []byte("HTTP/1.1 2"))
}

// Compiled when they are needed for the first time: both forms together take longer than all else that this package
// does before the process listens.
var (
	// batchFailure is needed at the first answer to a batch, and errorCodeForm at the first answer that is no 2xx, often
	// an ordinary 404 or 409.
	batchFailure = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?s)HTTP/1\.1 ([45][0-9]{2}) (?:.*?"code":\s*"([A-Za-z0-9_]{1,64})")?`)
	})
	// errorCodeForm keeps out of telemetry what a proxy in between may have written.
	errorCodeForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`) })
)

// expectedCodes are the error codes that are answers: there is no such row, it is there already, it has changed, the
// lock is another's; or there is no such table or lock yet, which are made then.
var expectedCodes = []string{
	"ResourceNotFound", "EntityNotFound", "TableNotFound", "ContainerNotFound", "BlobNotFound",
	"EntityAlreadyExists", "TableAlreadyExists", "ContainerAlreadyExists", "BlobAlreadyExists",
	"UpdateConditionNotSatisfied", "ConditionNotMet",
	"LeaseAlreadyPresent", "LeaseIdMissing",
}
