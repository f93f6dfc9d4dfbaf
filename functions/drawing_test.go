package functions

import (
	"context"
	"net/http/httptest"
	"testing"

	"tiney/internal/link"
)

// slow is a response to a client that reads it only when it is told to.
type slow struct {
	*httptest.ResponseRecorder
	writing, read chan struct{}
}

func (s slow) Write(p []byte) (int, error) {
	close(s.writing)
	<-s.read
	return s.ResponseRecorder.Write(p)
}

func TestSlowClientsKeepNobodyFromDrawing(t *testing.T) {
	base, err := link.ParseBase("https://tiney.to")
	if err != nil {
		t.Fatal(err)
	}
	q := &service{drawing: make(chan struct{}, 1)}
	q.Rules.Base = base
	r := httptest.NewRequest("GET", "/api/links/abc/qr", nil)
	r.SetPathValue("alias", "abc")
	s := slow{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan error)
	go func() { done <- q.qr(t.Context(), s, r) }()
	<-s.writing
	if err := q.qr(t.Context(), httptest.NewRecorder(), r); err != nil {
		t.Error(err)
	}
	close(s.read)
	if err := <-done; err != nil {
		t.Error(err)
	}

	// If a client has waited for too long, or disconnects, the service has not failed.
	q.drawing <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.qr(ctx, httptest.NewRecorder(), r); err != error(busyProblem) {
		t.Errorf("got %v", err)
	}
}
