package functions

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tiney/internal/access"
	"tiney/internal/formats"
	"tiney/internal/link"
)

type shortenRequest struct {
	LongURL    string        `json:"longUrl"`
	Domain     *string       `json:"domain"`
	Alias      *string       `json:"alias"`
	Seconds    *integer      `json:"expiresInSeconds"`
	ExpiresAt  *time.Time    `json:"expiresAtUtc"`
	StartsAt   *time.Time    `json:"startsAtUtc"`
	GoneURL    *string       `json:"goneUrl"`
	StatusCode *integer      `json:"statusCode"`
	Forward    forwarded     `json:"forward"`
	Rules      formats.Rules `json:"rules"`
	Password   *string       `json:"password"`
	MaxOpens   *integer      `json:"maxOpens"`
	Title      string        `json:"title"`
	Tags       tags          `json:"tags"`
	Owner      *string       `json:"owner"`
}

// summary is what everyone may see of a link. A time is null if the link has none.
type summary struct {
	Alias     link.Alias  `json:"alias"`
	Domain    link.Domain `json:"domain"`
	ShortURL  string      `json:"shortUrl"`
	LongURL   string      `json:"longUrl"`
	CreatedAt *string     `json:"createdAtUtc"`
	ExpiresAt *string     `json:"expiresAtUtc"`
}

// made is a link in the response to its creation. It has those of its further members that the
// request had.
type made struct {
	summary
	Forward  *[]string  `json:"forward,omitzero"`
	StartsAt **string   `json:"startsAtUtc,omitzero"`
	GoneURL  **string   `json:"goneUrl,omitzero"`
	Rules    []ruleView `json:"rules,omitzero"`
	Password *bool      `json:"password,omitzero"`
	MaxOpens **int      `json:"maxOpens,omitzero"`
}

// viewMade returns what a shorten responds. What keeps a link from leading to its URL is there even
// if the request has nothing of it: the link may have been there.
func (s *service) viewMade(l link.Link, wish link.Wish) made {
	m := made{summary: s.summarize(l)}
	if wish.Forward != nil {
		m.Forward = new(l.Forward.Names())
	}
	if !l.StartsAt.IsZero() || wish.StartsAt != nil {
		m.StartsAt = new(formatTime(l.StartsAt))
	}
	if wish.GoneURL != nil {
		m.GoneURL = new(orNull(string(l.GoneURL)))
	}
	if wish.Rules != nil {
		m.Rules = viewRules(l.Rules)
	}
	if l.Guarded() || wish.Password != nil || wish.MaxOpens != nil {
		m.Password, m.MaxOpens = new(l.Password != ""), new(orNull(l.MaxOpens))
	}
	return m
}

func (s *service) summarize(l link.Link) summary {
	return summary{
		Alias:     l.Alias(),
		Domain:    s.Rules.DomainName(l.Name.Domain()),
		ShortURL:  s.Rules.ShortURL(l),
		LongURL:   l.LongURL,
		CreatedAt: formatTime(l.CreatedAt),
		ExpiresAt: formatTime(l.ExpiresAt),
	}
}

// countRejected returns a function that also counts the requests that serve rejects.
func (s *service) countRejected(serve handlerFunc) handlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
		err := serve(ctx, w, r)
		if err != nil {
			if status := problemOf(err).Status; 400 <= status && status < 500 {
				s.Metrics.ShortenRejected.Add(1)
			}
		}
		return err
	}
}

// shorten handles POST /api/shorten.
func (s *service) shorten(c *call) (any, error) {
	if s.OwnersOnly {
		if err := needOwner(c.who); err != nil { // before the body is read
			return nil, err
		}
	}
	body, err := c.readJSON(maxBody)
	if err != nil {
		return nil, err
	}
	wish, err := s.parseWish(c.ctx, body, c.who)
	if err != nil {
		return nil, err
	}
	l, isNew, token, err := s.create(c.ctx, wish, c.who)
	if err != nil {
		return nil, err
	}
	view := struct {
		made
		ClaimToken string `json:"claimToken,omitempty"`
	}{s.viewMade(l, wish), token}
	if isNew {
		return created{view, view.ShortURL}, nil
	}
	return view, nil
}

// create makes the link that a caller asks for, or finds the existing link of the URL. token is the
// claim token of a new link without an owner.
func (s *service) create(
	ctx context.Context, wish link.Wish, who access.Caller,
) (l link.Link, created bool, token string, err error) {
	if len(wish.Forward) > 0 || wish.StartsAt != nil || wish.GoneURL != nil ||
		len(wish.Rules) > 0 || wish.Password != nil || wish.MaxOpens != nil ||
		wish.Domain != "" && s.DomainsOwnersOnly {
		if err := needOwner(who); err != nil {
			return l, false, "", err
		}
	}
	want, err := s.Rules.New(wish, s.Now())
	if err != nil {
		return l, false, "", err
	}
	if wish.Owner == "" {
		if token, err = access.NewClaimToken(s.Random); err != nil {
			return l, false, "", err
		}
		want.ClaimHash = access.Hash(token)
	}
	l, created, err = s.Links.Create(ctx, want, who.ClaimHash)
	switch {
	case err != nil:
		return l, false, "", err
	case !created:
		s.Metrics.ShortenDeduplicated.Add(1)
		return l, false, "", nil
	}
	s.Metrics.ShortenCreated.Add(1)
	s.Clicks.Created(1)
	return l, true, token, nil
}

// hashFor returns the hash of a password for a link. Where the link that the index names has that
// password, it is that link's hash, by which the store finds out that the link will do.
func (s *service) hashFor(ctx context.Context, wish link.Wish, password string) (*string, error) {
	if wish.Alias == nil {
		l, err := s.Links.Indexed(ctx, link.Link{Name: wish.Domain.Name(""), Owner: wish.Owner,
			LongURL: wish.LongURL})
		if err != nil && !errors.Is(err, link.ErrNotFound) && !errors.Is(err, link.ErrDamaged) {
			return nil, err
		}
		if match, err := s.passwords.Match(ctx, l.Password, password, nil); err != nil {
			return nil, passwordBusyProblem
		} else if match {
			return &l.Password, nil
		}
	}
	hash, err := s.passwords.Hash(ctx, password)
	if err != nil {
		return nil, passwordBusyProblem
	}
	return &hash, nil
}

// parseWish decodes a caller's request to shorten. It hashes a password as long as ctx allows.
func (s *service) parseWish(
	ctx context.Context, body []byte, who access.Caller,
) (link.Wish, error) {
	if len(body) > maxBody { // of a bulk
		return link.Wish{}, tooLargeProblem(maxBody)
	}
	request, err := decode[shortenRequest](body)
	switch {
	case errors.Is(err, notObjectProblem):
		return link.Wish{}, noURLProblem
	case err != nil:
		return link.Wish{}, err
	case request.Seconds != nil && request.ExpiresAt != nil:
		return link.Wish{}, twoEndsProblem
	case isZero(request.StartsAt):
		return link.Wish{}, zeroStartProblem
	}
	if err := checkMaxOpens(request.MaxOpens); err != nil {
		return link.Wish{}, err
	}
	d, err := s.domain(request.Domain)
	if err != nil {
		return link.Wish{}, err
	}
	owner, err := ownerFor(who, request.Owner)
	if err != nil {
		return link.Wish{}, err
	}
	wish := link.Wish{
		Owner:      owner,
		LongURL:    request.LongURL,
		Domain:     d,
		Alias:      request.Alias,
		End:        link.End{Seconds: (*int64)(request.Seconds), At: request.ExpiresAt},
		StartsAt:   request.StartsAt,
		GoneURL:    request.GoneURL,
		StatusCode: (*int64)(request.StatusCode),
		Forward:    request.Forward,
		Rules:      request.Rules,
		MaxOpens:   (*int64)(request.MaxOpens),
		Title:      request.Title,
		Tags:       request.Tags,
	}
	if request.Password != nil {
		password, err := link.NormalPassword(*request.Password)
		if err == nil {
			err = needOwner(who)
		}
		if err != nil {
			return link.Wish{}, err
		}
		if wish.Password, err = s.hashFor(ctx, wish, password); err != nil {
			return link.Wish{}, err
		}
	}
	return wish, nil
}

// checkMaxOpens returns an error for a zero, which stands for no limit in package link alone.
func checkMaxOpens(n *integer) error {
	if n != nil && *n == 0 {
		return link.ErrMaxOpens
	}
	return nil
}

var twoEndsProblem = fieldProblem("expiresAtUtc",
	"A link has one end: send expiresAtUtc or expiresInSeconds, not both.")
