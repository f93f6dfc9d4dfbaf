package functions

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"

	"tiney/link"
)

// problem is an answer that is an error, as RFC 9457 has it. It is an error itself, so that functions can return one.
type problem struct {
	Type   string `json:"type"` // a URI reference that stays the same for this kind of problem
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`          // what to do about it
	Field  string `json:"field,omitempty"` // the field of the request's body that is wrong

	header http.Header // what the answer carries besides
}

func (p *problem) Error() string { return p.Title }

// The kinds of problems that are always the same.
var (
	notFoundProblem = newProblem(http.StatusNotFound, "not-found", "No such link",
		"There is no short link at this address. Check it for typing mistakes: capital and small letters differ.")
	expiredProblem = newProblem(http.StatusGone, "link-expired", "This link has expired",
		"The short link at this address has come to the end of its life. Ask whoever gave it to you for a new one.")
	disabledProblem = newProblem(http.StatusGone, "link-disabled", "This link is disabled",
		"The short link at this address has been disabled. Ask whoever gave it to you for the address that it led to.")
	damagedProblem = newProblem(http.StatusGone, "link-damaged", "This link is damaged",
		"There is a short link at this address, but its record is damaged. Ask whoever gave it to you for the address that it led to.")
	targetDisabledProblem = newProblem(http.StatusForbidden, "target-disabled", "This URL's link is disabled",
		"The link of this URL has been disabled by the people who run this service, so it gets no new one.")
	unavailableProblem = newProblem(http.StatusServiceUnavailable, "storage-unavailable", "Try again in a moment",
		"The place where links are kept does not answer at the moment. Nothing is wrong with your request: repeat it in a few seconds.")
	aliasesTakenProblem = newProblem(http.StatusInternalServerError, "aliases-taken", "No free alias found",
		"Every alias that was tried is taken. Repeat the request; if this happens again, ALIAS_LENGTH needs to be larger.")
	internalProblem = newProblem(http.StatusInternalServerError, "internal", "Something went wrong here",
		"The service failed in a way that it should not. Repeat the request; the log of the service says more.")
	mediaTypeProblem = newProblem(http.StatusUnsupportedMediaType, "media-type", "Send JSON",
		"The body must be JSON: send it with the header Content-Type: application/json.")
	tooLargeProblem = newProblem(http.StatusRequestEntityTooLarge, "body-too-large", "The body is too large",
		fmt.Sprintf("The body may have at most %d bytes.", maxBody))
	timeoutProblem = newProblem(http.StatusRequestTimeout, "body-too-slow", "The body took too long",
		"The body did not arrive in time. Send the request again.")
)

func newProblem(status int, kind, title, detail string) *problem {
	p := &problem{Type: "/problems/" + kind, Title: title, Status: status, Detail: detail, header: http.Header{}}
	if status == http.StatusServiceUnavailable {
		p.header.Set("Retry-After", "5") // seconds; about what a storage service takes to fail over
	}
	return p
}

func badRequest(kind, title, detail, field string) *problem {
	p := newProblem(http.StatusBadRequest, kind, title, detail)
	p.Field = field
	return p
}

func methodProblem(methods []string) *problem {
	p := newProblem(http.StatusMethodNotAllowed, "method", "This method is not taken here",
		"This address takes "+strings.Join(methods, " and ")+" only.")
	p.header.Set("Allow", strings.Join(methods, ", "))
	return p
}

// bodyProblem says what went wrong while a body was read.
func bodyProblem(err error) *problem {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return tooLargeProblem
	case errors.Is(err, os.ErrDeadlineExceeded):
		return timeoutProblem
	}
	return badRequest("body", "The body is not complete", "The body ended before it was complete. Send the request again.", "")
}

// problemOf returns the problem that an error is answered with. An error that it does not know gets a text that
// tells nothing of the inside.
func problemOf(err error) *problem {
	var p *problem
	var invalid *link.Invalid
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &invalid):
		kind, title := "long-url", "This URL cannot be shortened"
		if invalid.Field == link.FieldTTL {
			kind, title = "expires-in-seconds", "This lifetime cannot be had"
		}
		return badRequest(kind, title, invalid.Detail, invalid.Field)
	case errors.Is(err, link.ErrNotFound):
		return notFoundProblem
	case errors.Is(err, link.ErrDamaged):
		return damagedProblem
	case errors.Is(err, link.ErrDisabled):
		return targetDisabledProblem
	case errors.Is(err, link.ErrUnavailable):
		return unavailableProblem
	case errors.Is(err, link.ErrAliasesTaken):
		return aliasesTakenProblem
	}
	return internalProblem
}

// write answers with the problem: as a page where a person is looking who can do something with it, else as JSON.
func (p *problem) write(w http.ResponseWriter, r *http.Request) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	switch p.Status {
	case http.StatusNotFound, http.StatusGone, http.StatusServiceUnavailable:
		w.Header().Set("Vary", "Accept")
		if prefersHTML(r.Header) {
			writePage(w, p)
			return
		}
	}
	setHeaders(w, "application/problem+json")
	w.WriteHeader(p.Status)
	writeJSON(w, p)
}

// writeJSON writes v as one line. An error is the client's, who has gone.
func writeJSON(w http.ResponseWriter, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}

// prefersHTML says whether a client would rather have a page than JSON: whether it asks for text/html by name, and for
// nothing that JSON would do for more than that.
func prefersHTML(h http.Header) bool {
	var html, json float64
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept"), ","), ",") {
		kind, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if given, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(given, 64); err != nil {
				continue
			}
		}
		switch kind {
		case "text/html":
			html = max(html, q)
		case "application/json", "application/problem+json", "application/*", "*/*":
			json = max(json, q)
		}
	}
	return html > 0 && html >= json
}
