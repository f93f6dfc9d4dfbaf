package telemetry

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

func TestOutages(t *testing.T) {
	var o outages
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var said []string
	at := func(seconds float64, target, code string, success bool) {
		now := start.Add(time.Duration(seconds * float64(time.Second)))
		event, happened := o.observe(Dependency{Target: target, Name: "GetEntity X",
			ResultCode: code, Success: success, Start: now}, now)
		if happened {
			said = append(said, fmt.Sprint(seconds, " ", event.Name, " ",
				event.Properties[PropertyTarget], event.Properties[PropertyResultCode],
				event.Measurements[MeasurementOutage], event.Measurements[MeasurementFailedCalls]))
		}
	}
	at(0, "a", "503", false) // two failures are not an outage
	at(1, "a", "503", false)
	at(2, "a", "200", true)
	at(3, "a", "503", false) // canceled calls do not count
	at(3, "a", "503", false)
	for range 10 {
		at(4, "a", ResultCanceled, false)
	}
	at(4, "a", "200", true)
	at(10, "a", "503", false)
	at(11, "b", "503", false) // another service has its own failures
	at(12, "a", "timeout", false)
	at(13, "b", "503", false)
	at(14, "a", "unreachable", false)
	at(15, "a", "503", false) // an outage begins once
	at(16, "a", "200", true)  // and does not end with the first success
	at(17, "a", "503", false)
	at(18, "b", "200", true)
	at(22.5, "a", "200", true)
	at(23, "a", "200", true) // it ends once
	at(24, "a", "503", false)
	at(24, "a", "503", false)
	at(25, "a", "503", false)
	at(100, "a", "404", true)
	want := []string{
		"14 StorageUnavailable aunreachable0 0",
		"22.5 StorageRecovered a7 5",
		"25 StorageUnavailable a5030 0",
		"100 StorageRecovered a1 3",
	}
	if !reflect.DeepEqual(said, want) {
		t.Errorf("got\n%q, want\n%q", said, want)
	}
}
