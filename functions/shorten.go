package functions

import (
	"context"
	"net/http"
	"time"

	"tiney/link"
	"tiney/telemetry"
)

// shorten handles POST /api/shorten.
type shorten struct {
	links   Creator
	rules   link.Rules
	now     func() time.Time
	metrics *telemetry.Metrics
}

type shortenRequest struct {
	LongURL string   `json:"longUrl"`
	Seconds *integer `json:"expiresInSeconds"`
}

// shortened is the response. A time is null if the link has none; only other programs make such links.
type shortened struct {
	Alias     link.Alias `json:"alias"`
	ShortURL  string     `json:"shortUrl"`
	LongURL   string     `json:"longUrl"`
	CreatedAt *string    `json:"createdAtUtc"`
	ExpiresAt *string    `json:"expiresAtUtc"`
}

func (s *shorten) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	l, created, err := s.create(ctx, w, r)
	if err != nil {
		if status := problemOf(err).Status; 400 <= status && status < 500 {
			s.metrics.ShortenRejected.Add(1)
		}
		return err
	}
	setHeaders(w, "application/json")
	short := s.rules.Base.ShortURL(l.Alias)
	if created {
		s.metrics.ShortenCreated.Add(1)
		w.Header().Set("Location", short)
		w.WriteHeader(http.StatusCreated)
	} else {
		s.metrics.ShortenDeduplicated.Add(1)
	}
	writeJSON(w, shortened{Alias: l.Alias, ShortURL: short, LongURL: l.LongURL,
		CreatedAt: formatTime(l.CreatedAt), ExpiresAt: formatTime(l.ExpiresAt)})
	return nil
}

func (s *shorten) create(ctx context.Context, w http.ResponseWriter, r *http.Request) (l link.Link, created bool, err error) {
	body, err := decodeJSON[shortenRequest](w, r)
	if err != nil {
		return link.Link{}, false, err
	}
	want, err := s.rules.New(body.LongURL, (*int64)(body.Seconds), s.now())
	if err != nil {
		return link.Link{}, false, err
	}
	return s.links.Create(ctx, want)
}
