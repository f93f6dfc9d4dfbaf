package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"tiney/link"
)

// What a storage call can say. Each is a link.ErrUnavailable too: where it is no answer to what was asked, storage did
// not answer, and above all has not said that there is no such link.
var (
	errExists  = fmt.Errorf("%w: the row exists already", link.ErrUnavailable)
	errGone    = fmt.Errorf("%w: the row does not exist", link.ErrUnavailable)
	errChanged = fmt.Errorf("%w: the row was changed or deleted since it was read", link.ErrUnavailable)
	errNoTable = fmt.Errorf("%w: the table does not exist", link.ErrUnavailable)
)

// safely turns a panic of f into an error. It stands where f runs in a goroutine of its own, which no request's
// recovery reaches: the SDK is known to panic over an answer that it does not expect.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// classify turns the SDK's error of a call into one of those above, or into a plain link.ErrUnavailable.
//
// The text of the result is fit for a log: it leaves out URLs, since a shared access signature may be in them, and the
// bodies of answers.
func classify(call string, err error) error {
	if err == nil {
		return nil
	}
	var refused *azidentity.AuthenticationFailedError
	if errors.As(err, &refused) {
		status := 0
		if refused.RawResponse != nil {
			status = refused.RawResponse.StatusCode
		}
		return fmt.Errorf("%s: %w: no token for the identity (status %d)", call, link.ErrUnavailable, status)
	}
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) {
		var inURL *url.Error
		if errors.As(err, &inURL) {
			err = inURL.Err
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: %w in time: %w", call, link.ErrUnavailable, err)
		}
		return fmt.Errorf("%s: %w: %w", call, link.ErrUnavailable, err)
	}
	status, code := answer.StatusCode, answer.ErrorCode
	if status == http.StatusAccepted && code == "" {
		status, code, _ = ofBatch(answer.RawResponse)
	}
	kind := link.ErrUnavailable
	switch code {
	case "EntityAlreadyExists":
		kind = errExists
	case "ResourceNotFound", "EntityNotFound":
		kind = errGone
	case "TableNotFound":
		kind = errNoTable
	default:
		if status == http.StatusPreconditionFailed {
			kind = errChanged
		}
	}
	return fmt.Errorf("%s: %w (%d %s)", call, kind, status, code)
}
