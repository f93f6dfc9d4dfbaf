package functions_test

import (
	"sync"

	"tiney/clicks"
	"tiney/link"
)

// fakeClicks keeps what it is told to count.
type fakeClicks struct {
	mu      sync.Mutex
	clicked map[link.Alias][]clicks.Click
	created int
}

func (f *fakeClicks) Click(a link.Alias, k clicks.Click) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clicked == nil {
		f.clicked = map[link.Alias][]clicks.Click{}
	}
	f.clicked[a] = append(f.clicked[a], k)
}

func (f *fakeClicks) Created(links int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created += links
}
