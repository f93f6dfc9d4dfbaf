package functions

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"tiney/access"
	"tiney/link"
	"tiney/telemetry"
)

// shorten handles POST /api/shorten.
type shorten struct {
	links      Creator
	rules      link.Rules
	ownersOnly bool
	now        func() time.Time
	random     io.Reader
	clicks     Clicks
	metrics    *telemetry.Metrics
}

type shortenRequest struct {
	LongURL    string     `json:"longUrl"`
	Alias      *string    `json:"alias"`
	Seconds    *integer   `json:"expiresInSeconds"`
	ExpiresAt  *time.Time `json:"expiresAtUtc"`
	StatusCode *integer   `json:"statusCode"`
	Title      string     `json:"title"`
	Tags       []string   `json:"tags"`
}

// summary is what anybody may know of a link. A time is null if the link has none.
type summary struct {
	Alias     link.Alias `json:"alias"`
	ShortURL  string     `json:"shortUrl"`
	LongURL   string     `json:"longUrl"`
	CreatedAt *string    `json:"createdAtUtc"`
	ExpiresAt *string    `json:"expiresAtUtc"`
}

func summaryOf(l link.Link, base link.Base) summary {
	return summary{Alias: l.Alias, ShortURL: base.ShortURL(l.Alias), LongURL: l.LongURL, CreatedAt: formatTime(l.CreatedAt), ExpiresAt: formatTime(l.ExpiresAt)}
}

// counted returns serve, and counts the requests that it rejects, whoever sends them.
func (s *shorten) counted(serve handlerFunc) handlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
		err := serve(ctx, w, r)
		if err != nil {
			if status := problemOf(err).Status; 400 <= status && status < 500 {
				s.metrics.ShortenRejected.Add(1)
			}
		}
		return err
	}
}

func (s *shorten) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	if s.ownersOnly {
		if err := needOwner(who); err != nil {
			return err
		}
	}
	want, err := s.wanted(w, r, who.Owner)
	if err != nil {
		return err
	}
	var token string
	if who.Owner == "" {
		if token, err = access.NewClaimToken(s.random); err != nil {
			return err
		}
		want.ClaimHash = access.Hash(token)
	}
	l, created, err := s.links.Create(ctx, want, who.ClaimHash)
	if errors.Is(err, link.ErrDisabled) && who.Owner != "" {
		return ownDisabledProblem
	}
	if err != nil {
		return err
	}
	response := struct {
		summary
		ClaimToken string `json:"claimToken,omitempty"`
	}{summary: summaryOf(l, s.rules.Base)}
	setHeaders(w, "application/json")
	if created {
		s.metrics.ShortenCreated.Add(1)
		s.clicks.Created(1)
		response.ClaimToken = token
		w.Header().Set("Location", response.ShortURL)
		w.WriteHeader(http.StatusCreated)
	} else {
		s.metrics.ShortenDeduplicated.Add(1)
	}
	writeJSON(w, response)
	return nil
}

// wanted returns the link that a request asks for.
func (s *shorten) wanted(w http.ResponseWriter, r *http.Request, owner string) (link.Link, error) {
	body, err := decodeJSON[shortenRequest](w, r)
	if errors.Is(err, notObjectProblem) {
		return link.Link{}, noURLProblem
	}
	if err != nil {
		return link.Link{}, err
	}
	if body.Seconds != nil && body.ExpiresAt != nil {
		return link.Link{}, twoEndsProblem
	}
	return s.rules.New(link.Wish{
		LongURL: body.LongURL, Owner: owner, Alias: body.Alias, End: link.End{Seconds: (*int64)(body.Seconds), At: body.ExpiresAt},
		StatusCode: (*int64)(body.StatusCode), Title: body.Title, Tags: body.Tags,
	}, s.now())
}

var twoEndsProblem = fieldProblem("expiresAtUtc", "A link has one end: send expiresAtUtc or expiresInSeconds, not both.")
