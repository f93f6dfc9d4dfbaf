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
	if err := s.permit(who); err != nil { // before anything is read
		return err
	}
	wish, err := wished(decodeJSON[shortenRequest](w, r, maxBody))
	if err != nil {
		return err
	}
	l, created, token, err := s.create(ctx, wish, who)
	if err != nil {
		return err
	}
	response := struct {
		summary
		ClaimToken string `json:"claimToken,omitempty"`
	}{summary: summaryOf(l, s.rules.Base), ClaimToken: token}
	setHeaders(w, "application/json")
	if created {
		w.Header().Set("Location", response.ShortURL)
		w.WriteHeader(http.StatusCreated)
	}
	writeJSON(w, response)
	return nil
}

// permit returns an error unless a caller may shorten.
func (s *shorten) permit(who access.Caller) error {
	if !s.ownersOnly {
		return nil
	}
	return needOwner(who)
}

// create makes the link that a caller wishes for, or finds the one that the URL has. token is the claim token of a new link
// without an owner.
func (s *shorten) create(ctx context.Context, wish link.Wish, who access.Caller) (l link.Link, created bool, token string, err error) {
	if err = s.permit(who); err != nil {
		return l, false, "", err
	}
	wish.Owner = who.Owner
	want, err := s.rules.New(wish, s.now())
	if err != nil {
		return l, false, "", err
	}
	if who.Owner == "" {
		if token, err = access.NewClaimToken(s.random); err != nil {
			return l, false, "", err
		}
		want.ClaimHash = access.Hash(token)
	}
	l, created, err = s.links.Create(ctx, want, who.ClaimHash)
	switch {
	case errors.Is(err, link.ErrDisabled) && who.Owner != "":
		return l, false, "", ownDisabledProblem
	case err != nil:
		return l, false, "", err
	case !created:
		s.metrics.ShortenDeduplicated.Add(1)
		return l, false, "", nil
	}
	s.metrics.ShortenCreated.Add(1)
	s.clicks.Created(1)
	return l, true, token, nil
}

// wished returns the link that a request wishes for, which was decoded, or err says why not.
func wished(body shortenRequest, err error) (link.Wish, error) {
	if errors.Is(err, notObjectProblem) {
		return link.Wish{}, noURLProblem
	}
	if err != nil {
		return link.Wish{}, err
	}
	if body.Seconds != nil && body.ExpiresAt != nil {
		return link.Wish{}, twoEndsProblem
	}
	return link.Wish{LongURL: body.LongURL, Alias: body.Alias, End: link.End{Seconds: (*int64)(body.Seconds), At: body.ExpiresAt},
		StatusCode: (*int64)(body.StatusCode), Title: body.Title, Tags: body.Tags}, nil
}

var twoEndsProblem = fieldProblem("expiresAtUtc", "A link has one end: send expiresAtUtc or expiresInSeconds, not both.")
