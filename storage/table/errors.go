package table

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"tiney/internal/link"
)

// What a call may say of a row or a table. Each is a link.ErrUnavailable too: a result that nothing
// has handled says nothing about the link that was asked for, and surfaces as 503, never as 404.
var (
	ErrExists  = fmt.Errorf("%w: the row exists already", link.ErrUnavailable)
	ErrGone    = fmt.Errorf("%w: the row does not exist", link.ErrUnavailable)
	ErrChanged = fmt.Errorf("%w: the row was changed or deleted since it was read",
		link.ErrUnavailable)
	ErrNoTable = fmt.Errorf("%w: the table does not exist", link.ErrUnavailable)
)

// Classify turns the SDK's error of a call into link.ErrUnavailable.
//
// The text of the result is fit for a log: it leaves out URLs, since a shared access signature may
// be in them, and the bodies of responses.
func Classify(call string, err error) error {
	if err == nil {
		return nil
	}
	var refused *azidentity.AuthenticationFailedError
	if errors.As(err, &refused) {
		status := 0
		if refused.RawResponse != nil {
			status = refused.RawResponse.StatusCode
		}
		return fmt.Errorf("%s: %w: no token for the identity (status %d)", call,
			link.ErrUnavailable, status)
	}
	var response *azcore.ResponseError
	if errors.As(err, &response) {
		return fmt.Errorf("%s: %w (%d %s)", call, link.ErrUnavailable, response.StatusCode,
			response.ErrorCode)
	}
	var inURL *url.Error
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w in time: %w", call, link.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w: %w", call, link.ErrUnavailable, err)
}

// classify is Classify for calls to a table. Some of their results are errors of their own.
func classify(call string, err error) error {
	var response *azcore.ResponseError
	if !errors.As(err, &response) {
		return Classify(call, err)
	}
	var kind error
	switch code := response.ErrorCode; {
	case code == "EntityAlreadyExists":
		kind = ErrExists
	case code == "ResourceNotFound", code == "EntityNotFound":
		kind = ErrGone
	case code == "TableNotFound", code == "TableBeingDeleted":
		kind = ErrNoTable
	case response.StatusCode == http.StatusPreconditionFailed:
		kind = ErrChanged
	default:
		return Classify(call, err)
	}
	return fmt.Errorf("%s: %w", call, kind)
}

func hasCode(err error, code string) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.ErrorCode == code
}
