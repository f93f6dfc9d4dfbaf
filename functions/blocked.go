package functions

import (
	"context"

	"tiney/internal/link"
)

// block handles PUT /api/blocked/{host}.
func (s *service) block(c *call) (any, error) {
	return nil, changeHost(c, s.Blocked.Add)
}

// unblock handles DELETE /api/blocked/{host}.
func (s *service) unblock(c *call) (any, error) {
	return nil, changeHost(c, s.Blocked.Remove)
}

func changeHost(c *call, change func(context.Context, link.Host) error) error {
	host, ok := link.ParseHost(c.r.PathValue("host"))
	if !ok {
		return badHostProblem
	}
	return change(c.ctx, host)
}

// listBlocked handles GET /api/blocked.
func (s *service) listBlocked(c *call) (any, error) {
	type item struct {
		Host      link.Host `json:"host"`
		CreatedAt *string   `json:"createdAtUtc"`
	}
	found, err := s.Blocked.List(c.ctx)
	return listOf(found, func(h link.BlockedHost) item {
		return item{h.Host, formatTime(h.CreatedAt)}
	}), err
}
