package memtable_test

import (
	"testing"
	"time"

	"tiney/internal/tabletest"
	"tiney/storage"
	"tiney/storage/memtable"
)

func TestConformance(t *testing.T) {
	service := memtable.New(time.Now)
	tabletest.Conform(t, service, func(name string) storage.Table { return service.Table(name) },
		"Conform")
}
