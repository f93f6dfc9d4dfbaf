package telemetry

import (
	"sync"
	"time"
)

const (
	// outageAfter is how many calls to a service fail in a row before that is an outage: all tries of one call.
	outageAfter = 3
	// outageOver is how long none has to fail before a call that succeeds is the end of it, so that a service that comes
	// and goes is one outage.
	outageOver = 5 * time.Second
)

// outages tell from the calls to each service when it fails, and when it is well again.
type outages struct {
	mu       sync.Mutex
	services map[string]*service // by target
}

type service struct {
	failures     int // since the last success, or in this outage
	down         bool
	since, until time.Time // the first and the last failure of these
}

// observe takes note of a call, and returns the event that it makes, if any. A call that its caller gave up says
// nothing.
func (o *outages) observe(d Dependency, now time.Time) (event Event, happened bool) {
	if d.ResultCode == ResultCanceled {
		return Event{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.services[d.Target]
	if s == nil {
		s = new(service)
		if o.services == nil {
			o.services = map[string]*service{}
		}
		o.services[d.Target] = s
	}
	switch {
	case !d.Success:
		if s.failures == 0 {
			s.since = d.Start
		}
		s.failures++
		s.until = now
		if s.down || s.failures < outageAfter {
			return Event{}, false
		}
		s.down = true
		return Event{Name: EventStorageUnavailable, Properties: map[string]string{
			PropertyTarget: d.Target, PropertyOperation: d.Name, PropertyResultCode: d.ResultCode,
		}}, true
	case !s.down:
		s.failures = 0
		return Event{}, false
	case now.Sub(s.until) < outageOver:
		return Event{}, false
	}
	event = Event{Name: EventStorageRecovered, Properties: map[string]string{PropertyTarget: d.Target},
		Measurements: map[string]float64{MeasurementOutage: s.until.Sub(s.since).Seconds(), MeasurementFailedCalls: float64(s.failures)}}
	*s = service{}
	return event, true
}
