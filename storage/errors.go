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

// Results of a storage call that the caller has to handle. They stay inside the package: see exported.
var (
	errExists  = errors.New("the row exists already")
	errGone    = errors.New("the row does not exist")
	errChanged = errors.New("the row was changed or deleted since it was read")
	errNoTable = errors.New("the table does not exist")
)

// exported returns err as callers outside of the package may see it. A result that nothing in here has handled says
// nothing about the link that was asked for: it must surface as 503, never as 404.
func exported(err error) error {
	for _, internal := range []error{errExists, errGone, errChanged, errNoTable} {
		if errors.Is(err, internal) {
			return fmt.Errorf("%w: %w", link.ErrUnavailable, err)
		}
	}
	return err
}

// safely turns a panic of f into an error. It is for goroutines that no request's recovery reaches: the SDK is known to
// panic over responses that it does not expect.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// classify turns the SDK's error of a call into one of those above, or into link.ErrUnavailable.
//
// The text of the result is fit for a log: it leaves out URLs, since a shared access signature may be in them, and the
// bodies of responses.
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
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		var inURL *url.Error
		if errors.As(err, &inURL) {
			err = inURL.Err
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: %w in time: %w", call, link.ErrUnavailable, err)
		}
		return fmt.Errorf("%s: %w: %w", call, link.ErrUnavailable, err)
	}
	status, code := response.StatusCode, response.ErrorCode
	if status == http.StatusAccepted && code == "" {
		status, code, _ = batchOutcome(response.RawResponse)
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
