package telemetry

import (
	"sync"
	"time"
)

const (
	// outageAfter is how many tries in a row have to fail to make an outage: those of one call, or
	// of two if they get no response.
	outageAfter = 3
	// outageOver is for how long none must have failed when a success ends the outage, so that a
	// service that flaps has one outage.
	outageOver = 5 * time.Second
)

// outages detects from the calls to each service when it begins to fail, and when it has recovered.
type outages struct {
	mu       sync.Mutex
	services map[string]*service // by target
}

type service struct {
	failures     int // since the last success, or in this outage
	down         bool
	since, until time.Time // the first and the last of these failures
}

// observe takes note of a call, and returns the event that it makes, if any. A canceled call says
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
	event = Event{Name: EventStorageRecovered,
		Properties: map[string]string{PropertyTarget: d.Target},
		Measurements: map[string]float64{MeasurementOutage: s.until.Sub(s.since).Seconds(),
			MeasurementFailedCalls: float64(s.failures)}}
	*s = service{}
	return event, true
}
