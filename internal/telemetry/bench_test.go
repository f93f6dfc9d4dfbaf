package telemetry

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"testing"
	"time"
)

// BenchmarkItem measures the work for one item from the queue to the wire, which goes on beside the
// requests. It encodes and compresses a batch as the SDK does.
func BenchmarkItem(b *testing.B) {
	s := &Sender{config: Config{Metrics: new(Metrics)}, oneOf: 1, queue: make(chan item, queueSize)}
	s.context = newContext(s.config)
	o := Begin(context.Background(), "redirect", nil, false)
	b.ReportAllocs()
	var text bytes.Buffer
	for n := 0; b.Loop(); n++ {
		s.Request(&o, Request{Status: 302, Success: true, Start: time.Now(),
			Duration: time.Millisecond})
		if err := json.NewEncoder(&text).Encode(s.envelope(<-s.queue)); err != nil {
			b.Fatal(err)
		}
		if n%batchSize == batchSize-1 {
			packed := gzip.NewWriter(new(bytes.Buffer))
			_, _ = packed.Write(text.Bytes())
			packed.Close()
			text.Reset()
		}
	}
}
