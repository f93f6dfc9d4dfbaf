package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"tiney/link"
)

// What a storage call can say besides link.ErrNotFound and link.ErrUnavailable.
var (
	errExists  = errors.New("the row exists already")
	errChanged = errors.New("the row was changed or deleted since it was read")
	errNoTable = errors.New("the table does not exist")
	errBadRow  = errors.New("the row is damaged")
)

// classify turns the SDK's error of a call into one of the few above. What is not known there is
// link.ErrUnavailable: nothing that storage says unasked may become a "not found".
//
// The text of the result is fit for a log: it leaves out URLs, since a shared access signature may be in them, and the
// bodies of answers.
func classify(call string, err error) error {
	if err == nil {
		return nil
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
	kind := link.ErrUnavailable
	switch answer.ErrorCode {
	case "EntityAlreadyExists":
		kind = errExists
	case "ResourceNotFound", "EntityNotFound":
		kind = link.ErrNotFound
	case "TableNotFound":
		kind = errNoTable
	default:
		if answer.StatusCode == http.StatusPreconditionFailed {
			kind = errChanged
		}
	}
	return fmt.Errorf("%s: %w (%d %s)", call, kind, answer.StatusCode, answer.ErrorCode)
}
