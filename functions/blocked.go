package functions

import (
	"context"
	"net/http"

	"tiney/internal/access"
	"tiney/internal/link"
)

// block handles PUT /api/blocked/{host}.
func (s *service) block(
	ctx context.Context, w http.ResponseWriter, r *http.Request, _ access.Caller,
) error {
	return changeHost(ctx, w, r, s.Blocklist.Add)
}

// unblock handles DELETE /api/blocked/{host}.
func (s *service) unblock(
	ctx context.Context, w http.ResponseWriter, r *http.Request, _ access.Caller,
) error {
	return changeHost(ctx, w, r, s.Blocklist.Remove)
}

func changeHost(
	ctx context.Context, w http.ResponseWriter, r *http.Request,
	change func(context.Context, link.Host) error,
) error {
	host, ok := link.ParseHost(r.PathValue("host"))
	if !ok {
		return badHostProblem
	}
	if err := change(ctx, host); err != nil {
		return err
	}
	noContent(w)
	return nil
}

// listBlocked handles GET /api/blocked.
func (s *service) listBlocked(
	ctx context.Context, w http.ResponseWriter, _ *http.Request, _ access.Caller,
) error {
	found, err := s.Blocklist.List(ctx)
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
