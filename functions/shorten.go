package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tiney/link"
	"tiney/telemetry"
)

// shorten answers POST /api/shorten.
type shorten struct {
	links   Creator
	rules   link.Rules
	now     func() time.Time
	metrics *telemetry.Metrics
}

// shortened is what shorten answers. A time is null where a link has none, which no link made here is.
type shortened struct {
	Alias     link.Alias `json:"alias"`
	ShortURL  string     `json:"shortUrl"`
	LongURL   string     `json:"longUrl"`
	CreatedAt *string    `json:"createdAtUtc"`
	ExpiresAt *string    `json:"expiresAtUtc"`
}

func (s *shorten) answer(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	l, created, err := s.shorten(ctx, w, r)
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

func (s *shorten) shorten(ctx context.Context, w http.ResponseWriter, r *http.Request) (l link.Link, created bool, err error) {
	// An older host does not pass on the type of a body that is empty; what is wrong then is the body.
	if r.ContentLength != 0 && !isJSON(r.Header.Get("Content-Type")) {
		return link.Link{}, false, mediaTypeProblem
	}
	body, err := readBody(w, r)
	if err != nil {
		return link.Link{}, false, err
	}
	longURL, ttl, err := decodeShorten(body)
	if err != nil {
		return link.Link{}, false, err
	}
	want, err := s.rules.New(longURL, ttl, s.now())
	if err != nil {
		return link.Link{}, false, err
	}
	return s.links.Create(ctx, want)
}

func isJSON(contentType string) bool {
	kind, params, err := mime.ParseMediaType(contentType)
	charset, given := params["charset"]
	return err == nil && kind == "application/json" && (!given || strings.EqualFold(charset, "utf-8"))
}

// decodeShorten reads the body of a request to shorten, more strictly than encoding/json would: names are as they are
// written, come once, and are known, and nothing in a string is replaced. The error is a problem.
func decodeShorten(body []byte) (longURL string, ttlSeconds *int64, err error) {
	const kind, title = "body", "The body is not as expected"
	if !utf8.Valid(body) {
		return "", nil, badRequest(kind, title, "The body is not valid UTF-8.", "")
	}
	notObject := badRequest(kind, title, `The body must be one JSON object such as {"longUrl":"https://example.com/page"}, and nothing else.`, "")
	if !json.Valid(body) {
		return "", nil, notObject
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return "", nil, notObject
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return "", nil, notObject
		}
		field := name.(string) // a JSON object's names always are
		if seen[field] {
			return "", nil, badRequest(kind, title, "This field is there twice; send it once.", field)
		}
		seen[field] = true
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return "", nil, notObject
		}
		switch field {
		case link.FieldLongURL:
			longURL, err = decodeLongURL(raw)
		case link.FieldTTL:
			ttlSeconds, err = decodeTTL(raw)
		default:
			err = badRequest(kind, title, "This field is not known; longUrl and expiresInSeconds are.", field)
		}
		if err != nil {
			return "", nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return "", nil, notObject
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", nil, notObject
	}
	return longURL, ttlSeconds, nil
}

func decodeLongURL(raw json.RawMessage) (string, error) {
	var longURL *string
	if err := json.Unmarshal(raw, &longURL); err != nil {
		return "", &link.Invalid{Field: link.FieldLongURL, Detail: "longUrl must be a string."}
	}
	if longURL == nil {
		return "", nil // as if it were not there, and refused as such
	}
	// encoding/json puts U+FFFD where an escape names half a character. One that the caller wrote is the caller's.
	const replacement = "\uFFFD"
	written := strings.Count(string(raw), replacement) + strings.Count(strings.ToLower(string(raw)), `\ufffd`)
	if strings.Count(*longURL, replacement) > written {
		return "", &link.Invalid{Field: link.FieldLongURL, Detail: `longUrl contains half of a character: a \ud800 to \udfff escape without its other half.`}
	}
	return *longURL, nil
}

func decodeTTL(raw json.RawMessage) (*int64, error) {
	var n *json.Number
	// A string of digits would decode into a Number too.
	if err := json.Unmarshal(raw, &n); err != nil || len(raw) > 0 && raw[0] == '"' {
		return nil, &link.Invalid{Field: link.FieldTTL, Detail: "expiresInSeconds must be a whole number."}
	}
	if n == nil {
		return nil, nil
	}
	if whole, err := n.Int64(); err == nil {
		return &whole, nil
	}
	// 60.0 and 6e1 are whole numbers too. What is too large for any life may lose its last digits here.
	f, err := n.Float64()
	if f != math.Trunc(f) || err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil, &link.Invalid{Field: link.FieldTTL, Detail: "expiresInSeconds must be a whole number."}
	}
	whole := int64(max(-1<<53, min(f, 1<<53)))
	return &whole, nil
}

func formatTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339)
	return &s
}
