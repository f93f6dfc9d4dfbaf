package telemetry

import (
	"sync"
	"time"
)

const (
	// outageAfter is how many tries in a row must fail to make an outage. One call makes that many
	// tries, or two calls do together if they get no response.
	outageAfter = 3
	// outageOver is how long no try may have failed before a success ends the outage. So a service
	// that alternates between failure and success has one outage.
	outageOver = 5 * time.Second
)

// outages detects when a service begins to fail and when it has recovered, by the calls to it.
type outages struct {
	mu       sync.Mutex
	services map[string]*service // by target
}

type service struct {
	failures     int // since the last success; during an outage, since it began
	down         bool
	since, until time.Time // the first and the last of these failures
}

// observe takes note of a call, and returns the event that it causes, if any. It ignores canceled
// calls.
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
	event = Event{Name: EventStorageRecovered,
		Properties: map[string]string{PropertyTarget: d.Target},
		Measurements: map[string]float64{MeasurementOutage: s.until.Sub(s.since).Seconds(),
			MeasurementFailedCalls: float64(s.failures)}}
	*s = service{}
	return event, true
}
