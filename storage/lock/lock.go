// Package lock is a lock among processes: the lease of a blob. Local is one within a process.
package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	// the longest finite lease, so that a killed holder blocks others for no longer
	leaseSeconds = 60
	// renewEvery leaves time for a renewal, whose tries may take 12 s together, before the lease
	// ends.
	renewEvery = 20 * time.Second
)

// Config says where the lock is. Every field is required unless it says otherwise.
type Config struct {
	Connection      table.Connection
	Container, Blob string
	Log             *slog.Logger
	Sender          *telemetry.Sender // gets the calls to storage as dependencies; nil disables it
}

// Lock is a lease on a blob. One process holds it at a time as long as all goes well. Work under it
// must do no harm if that fails, since a holder that was stopped does not know that its lease has
// run out.
type Lock struct {
	container *container.Client
	blob      *blockblob.Client
	log       *slog.Logger
}

// Open returns a Lock. It makes no call yet; container and blob are created when they are found
// missing.
func Open(config Config) (*Lock, error) {
	c, err := config.Connection.BlobContainer(config.Container, config.Sender)
	if err != nil {
		return nil, err
	}
	return &Lock{container: c, blob: c.NewBlockBlobClient(config.Blob), log: config.Log}, nil
}

// Do runs work while it holds the lock, and releases the lock afterwards. Work's context ends when
// the lease could not be renewed, with that as its cause. Errors: link.ErrLockHeld,
// link.ErrUnavailable, and those of work.
func (l *Lock) Do(ctx context.Context, work func(context.Context) error) error {
	held, err := lease.NewBlobClient(l.blob, nil)
	if err != nil {
		return err
	}
	if err := l.acquire(ctx, held); err != nil {
		if !errors.Is(err, link.ErrLockHeld) {
			_ = release(ctx, held, time.Second) // it may have been acquired, and the response lost
		}
		return err
	}
	defer func() {
		if err := release(ctx, held, table.Timeout); err != nil {
			l.log.Warn(telemetry.LogLockNotReleased, "error", err)
		}
	}()
	return whileRenewed(ctx, func(ctx context.Context) error {
		const call = "RenewLease"
		ctx, _ = table.WithCall(ctx, call)
		_, err := held.RenewLease(ctx, nil)
		return table.Classify(call, err)
	}, work)
}

// release gives the lease back, even if ctx has ended. If it fails, the lease runs out by itself.
func release(ctx context.Context, held *lease.BlobClient, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	const call = "ReleaseLease"
	ctx, _ = table.WithCall(ctx, call)
	_, err := held.ReleaseLease(ctx, nil)
	if bloberror.HasCode(err, bloberror.LeaseIDMismatchWithLeaseOperation,
		bloberror.LeaseNotPresentWithLeaseOperation) {
		return nil // not ours, or not any more: an earlier try released it, or somebody broke it
	}
	return table.Classify(call, err)
}

// whileRenewed runs work, calls renew every renewEvery until work is done, and ends work's context
// if renew fails.
func whileRenewed(ctx context.Context, renew, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		ticker := time.NewTicker(renewEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if err := renew(ctx); err != nil && ctx.Err() == nil {
					cancel(fmt.Errorf("the lock is lost: %w", err))
				}
			}
		}
	}()
	err := concurrent.Safely(func() error { return work(ctx) })
	cancel(nil)
	<-renewing
	return err
}

// acquire takes the lease, and creates the blob and its container if they are missing.
func (l *Lock) acquire(ctx context.Context, held *lease.BlobClient) error {
	ctx, cancel := context.WithTimeout(ctx, table.Timeout)
	defer cancel()
	const call = "AcquireLease"
	acquire := func() error {
		ctx, _ := table.WithCall(ctx, call)
		_, err := held.AcquireLease(ctx, leaseSeconds, nil)
		return err
	}
	err := acquire()
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound) {
		if err := l.Ensure(ctx); err != nil {
			return err
		}
		err = acquire()
	}
	if bloberror.HasCode(err, bloberror.LeaseAlreadyPresent) {
		return link.ErrLockHeld
	}
	return table.Classify(call, err)
}

// Ensure creates the blob, and its container, unless they exist. Errors: link.ErrUnavailable.
//
// The container is created only if the blob says that it is missing: an identity whose role is for
// that container alone need not be allowed to create one.
func (l *Lock) Ensure(ctx context.Context) error {
	const createContainer, createBlob = "CreateContainer", "CreateBlob"
	create := func() error {
		called, _ := table.WithCall(ctx, createBlob)
		_, err := l.blob.UploadBuffer(called, nil, &blockblob.UploadBufferOptions{
			AccessConditions: &blob.AccessConditions{
				ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(
					azcore.ETagAny)},
			},
		})
		return err
	}
	err := create()
	if bloberror.HasCode(err, bloberror.ContainerNotFound) {
		called, _ := table.WithCall(ctx, createContainer)
		_, err = l.container.Create(called, nil)
		if err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return table.Classify(createContainer, err)
		}
		err = create()
	}
	// LeaseIDMissing: it exists and is leased.
	if err != nil && !bloberror.HasCode(err, bloberror.BlobAlreadyExists,
		bloberror.LeaseIDMissing) {
		return table.Classify(createBlob, err)
	}
	return nil
}

// Held reports whether some process holds the lock. Errors: link.ErrUnavailable.
func (l *Lock) Held(ctx context.Context) (held bool, err error) {
	err = concurrent.Safely(func() error {
		const call = "GetBlob"
		ctx, _ := table.WithCall(ctx, call)
		is, err := l.blob.GetProperties(ctx, nil)
		if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound) {
			return nil
		}
		held = is.LeaseState != nil && *is.LeaseState == lease.StateTypeLeased
		return table.Classify(call, err)
	})
	return held, err
}

// Ping asks whether the lock's container is there. Errors: link.ErrUnavailable.
func (l *Lock) Ping(ctx context.Context) error {
	return concurrent.Safely(func() error {
		const call = "GetContainer"
		ctx, _ := table.WithCall(ctx, call)
		_, err := l.container.GetProperties(ctx, nil)
		return table.Classify(call, err)
	})
}

// Local is a lock within one process, for a service that keeps everything in its memory. The zero
// Local is free. Its methods are those of Lock, and only work can make them fail.
type Local struct{ held atomic.Bool }

// Do runs work while it holds the lock, and releases the lock afterwards. Errors: link.ErrLockHeld,
// and those of work.
func (l *Local) Do(ctx context.Context, work func(context.Context) error) error {
	if !l.held.CompareAndSwap(false, true) {
		return link.ErrLockHeld
	}
	defer l.held.Store(false)
	return concurrent.Safely(func() error { return work(ctx) })
}

// Held reports whether the lock is held.
func (l *Local) Held(context.Context) (bool, error) { return l.held.Load(), nil }

// Ensure has nothing to create.
func (l *Local) Ensure(context.Context) error { return nil }

// Ping finds the lock ready.
func (l *Local) Ping(context.Context) error { return nil }
