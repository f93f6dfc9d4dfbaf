package functions

import (
	"context"
	"net/http"
	"slices"

	"tiney/internal/link"
)

// preview shows where a link leads, as a page or as JSON. Metrics do not count it as a redirect.
func (s *service) preview(
	ctx context.Context, w http.ResponseWriter, r *http.Request, d decision, err error,
) error {
	if err != nil {
		return err
	}
	targets := slices.DeleteFunc(d.link.Targets(), func(longURL string) bool {
		return s.Blocked.Has(ctx, longURL)
	})
	l := d.link
	l.LongURL = d.longURL
	w.Header().Set("Vary", "Accept")
	if prefers(r.Header, "text/html") {
		lv := s.linkOnPage(l)
		if lv.Asked = d.rest; l.Forward&link.ForwardQuery != 0 && d.query != "" {
			lv.Asked += "?" + d.query
		}
		lv.Asked = link.Location(lv.Asked) // in ASCII
		for _, longURL := range targets {
			lv.Targets = append(lv.Targets, link.ASCII(longURL))
		}
		writePage(w, http.StatusOK, s.site.Preview(r.URL.EscapedPath(), lv))
		return nil
	}
	writeJSON(w, http.StatusOK, struct {
		made
		Targets []string `json:"targets"`
	}{made{summary: s.summarize(l), Forward: new(l.Forward.Names())}, targets})
	return nil
}
