package functions

import (
	"context"
	"net/http"

	"tiney/access"
	"tiney/link"
)

// blocked handles /api/blocked.
type blocked struct{ hosts Blocked }

// add handles PUT /api/blocked/{host}.
func (b *blocked) add(ctx context.Context, w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	return change(ctx, w, r, b.hosts.Add)
}

// remove handles DELETE /api/blocked/{host}.
func (b *blocked) remove(ctx context.Context, w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	return change(ctx, w, r, b.hosts.Remove)
}

func change(ctx context.Context, w http.ResponseWriter, r *http.Request, do func(context.Context, link.Host) error) error {
	host, ok := link.ParseHost(r.PathValue("host"))
	if !ok {
		return badHostProblem
	}
	if err := do(ctx, host); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// list handles GET /api/blocked.
func (b *blocked) list(ctx context.Context, w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
	found, err := b.hosts.List(ctx)
	if err != nil {
		return err
	}
	type item struct {
		Host      link.Host `json:"host"`
		CreatedAt *string   `json:"createdAtUtc"`
	}
	items := make([]item, len(found))
	for i, h := range found {
		items[i] = item{h.Host, formatTime(h.CreatedAt)}
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Items []item `json:"items"`
	}{items})
	return nil
}
