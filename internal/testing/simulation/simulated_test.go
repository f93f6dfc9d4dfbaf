//go:build unix

package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"tiney/handler/app"
	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
)

// simulated is a node that is not a process. It runs the service's own code with a clock of its
// own, and its storage calls wait for the simulation.
type simulated struct {
	simulation *simulation
	index      int
	skew       time.Duration // how far its clock is ahead
	seed       uint64        // of its random numbers
	lives      int
	stops      int           // the number of steps for which it is still stopped
	stoppedAt  time.Duration // the value of jumped when it was stopped
	cut        int           // the number of its calls that are still to be refused
	life       atomic.Pointer[life]
	begun      map[*http.Request]time.Time // the requests that it serves, and since when
}

// life is one process of a simulated node, from its start until it is killed.
type life struct {
	handler http.Handler
	ctx     context.Context
	end     context.CancelFunc
}

func (n *simulated) now() time.Time {
	n.simulation.mu.Lock()
	defer n.simulation.mu.Unlock()
	jumped := n.simulation.jumped
	if n.stops > 0 {
		jumped = n.stoppedAt
	}
	return time.Now().Add(jumped + n.skew)
}

func (n *simulated) kill() { n.life.Load().end() }

func (n *simulated) begins(req *http.Request) {
	at := n.simulation.wall()
	n.simulation.mu.Lock()
	defer n.simulation.mu.Unlock()
	n.begun[req] = at
}

func (n *simulated) ends(req *http.Request) {
	n.simulation.mu.Lock()
	defer n.simulation.mu.Unlock()
	delete(n.begun, req)
}

// stoodStill reports whether the node was stopped in the middle of a write for so long that the
// write may have to be repaired. The service does not promise that repair if the node is killed or
// cut off from storage at that moment. Reads repair nothing, nor do roll-ups and the like.
func (n *simulated) stoodStill(now time.Time) bool {
	for req, at := range n.begun {
		if now.Sub(at) > 30*time.Second && req.Method != http.MethodGet &&
			(req.URL.Path == "/control/reap" || !strings.HasPrefix(req.URL.Path, "/control/")) {
			return true
		}
	}
	return false
}

func (n *node) startSimulated() {
	s, r := n.sim.simulation, n.round
	ctx, end := context.WithCancel(context.Background())
	// A killed process makes no more calls.
	proxy := faultproxy.InMemory(s.service)
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if ctx.Err() != nil {
			return faultproxy.Refuse
		}
		return s.call(n, proxy, c)
	})
	proxy.After(func(c faultproxy.Call) { s.applied(n, proxy, c) })
	settings, err := settingsOf("UseDevelopmentStorage=true", r.prefix, "10")
	settings.Functions.Rules.AnyCase, settings.Storage.AnyCase = r.anyCase, r.anyCase
	if err == nil {
		settings.Storage.Open, err = proxy.Open()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	settings.Storage.Reap.StorageClock = true
	settings.Storage.Cache.Exact = true
	n.sim.lives++
	settings.Storage.Random = newSeeded(n.sim.seed, 100*n.sim.index+n.sim.lives)
	log := telemetry.NewLogger(r.t.Output(), slog.LevelError+1)
	node, err := app.New(ctx, settings, "simulation", n.sim.now, log)
	if err != nil {
		r.t.Fatal(err)
	}
	n.proxy = proxy
	n.sim.life.Store(&life{muxOf(node, new(atomic.Int64)), ctx, end})
	url := fmt.Sprintf("http://127.0.0.1:%d", 1000+n.sim.index)
	n.url.Store(&url)
	n.run.Store(r.newRun())
	n.jump.Store(0)
	n.down.Store(false)
}

// request is the operation of a request to a node, or of its response. Both park like storage
// calls.
const request = "request"

// RoundTrip sends a request to a simulated node.
func (s *simulation) RoundTrip(req *http.Request) (*http.Response, error) {
	index, err := strconv.Atoi(strings.TrimPrefix(req.URL.Host, "127.0.0.1:"))
	if err != nil {
		return nil, err
	}
	n := s.round.nodes[index-1000]
	s.mu.Lock()
	by := s.acting
	s.mu.Unlock()
	// A stopped node answers nothing.
	s.call(n, nil, faultproxy.Call{Operation: request, Key: req.Method + req.URL.Path, By: by})
	life := n.sim.life.Load()
	if life.ctx.Err() != nil {
		return nil, errors.New("nobody listens")
	}
	n.sim.begins(req)
	came := make(chan *http.Response, 1)
	go func() {
		in := req.Clone(faultproxy.By(req.Context(), by))
		in.RemoteAddr, in.RequestURI = "127.0.0.1:1", req.URL.RequestURI()
		in.Host = cmp.Or(req.Host, req.URL.Host)
		if in.Body == nil {
			in.Body = http.NoBody
		}
		w := httptest.NewRecorder()
		life.handler.ServeHTTP(w, in)
		came <- w.Result()
	}()
	var resp *http.Response
	select {
	case resp = <-came:
	case <-life.ctx.Done():
		err = errors.New("it was killed")
	case <-req.Context().Done():
		err = req.Context().Err()
	}
	n.sim.ends(req)
	s.call(n, nil, faultproxy.Call{Operation: request, Target: "response", Key: req.Method +
		req.URL.Path, By: by})
	return resp, err
}
