package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"tiney/link"
	"tiney/telemetry"
)

const (
	leaseSeconds = 60 // the longest that a lease can have an end; a killed holder blocks others for no longer
	renewEvery   = 20 * time.Second
)

// Lock is a lease on a blob. One process holds it at a time, as long as all goes well; whoever works under it must
// do no harm where that fails, since a holder that was stopped does not know that its lease has run out.
type Lock struct {
	container *container.Client
	blob      *blockblob.Client
	log       *slog.Logger
}

// OpenLock makes a Lock. It makes no call yet; container and blob are made when they are found missing. Its calls go to
// sender as dependencies, which may be nil.
func OpenLock(connection Connection, containerName, blobName string, log *slog.Logger, sender *telemetry.Sender) (*Lock, error) {
	c, err := connection.blobContainer(containerName, sender)
	if err != nil {
		return nil, err
	}
	return &Lock{container: c, blob: c.NewBlockBlobClient(blobName), log: log}, nil
}

// Do runs work while it holds the lock, and gives the lock back afterwards. The context of work ends when the lease
// could not be renewed; what Do returns then says so. Errors: link.ErrLockHeld, link.ErrUnavailable, those of work.
func (l *Lock) Do(ctx context.Context, work func(context.Context) error) error {
	held, err := lease.NewBlobClient(l.blob, nil)
	if err != nil {
		return err
	}
	if err := l.acquire(ctx, held); err != nil {
		if !errors.Is(err, link.ErrLockHeld) {
			l.release(ctx, held, time.Second) // it may have been taken, and the answer lost
		}
		return err
	}
	defer l.release(ctx, held, Timeout)
	return whileRenewed(ctx, func(ctx context.Context) error {
		const call = "RenewLease"
		ctx, _ = withCall(ctx, call)
		_, err := held.RenewLease(ctx, nil)
		return classify(call, err)
	}, work)
}

// release gives the lease back, also when ctx is at its end. Where it fails, the lease runs out by itself.
func (l *Lock) release(ctx context.Context, held *lease.BlobClient, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	const call = "ReleaseLease"
	ctx, _ = withCall(ctx, call)
	_, err := held.ReleaseLease(ctx, nil)
	// A lease that is not ours, or not any more, has been given back already, by an earlier try or by force.
	if err != nil && !bloberror.HasCode(err, bloberror.LeaseIDMismatchWithLeaseOperation, bloberror.LeaseNotPresentWithLeaseOperation) {
		l.log.Warn("the lock could not be given back; it ends by itself within a minute", "error", classify(call, err))
	}
}

// whileRenewed runs work, calls renew every so often until work is done, and ends work's context where renew fails.
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
	err := safely(func() error { return work(ctx) })
	cancel(nil)
	<-renewing
	return err
}

// acquire takes the lease, making the blob and its container where they are missing.
func (l *Lock) acquire(ctx context.Context, held *lease.BlobClient) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	const call = "AcquireLease"
	acquire := func() error {
		ctx, _ := withCall(ctx, call)
		_, err := held.AcquireLease(ctx, leaseSeconds, nil)
		return err
	}
	err := acquire()
	if bloberror.HasCode(err, bloberror.BlobNotFound, bloberror.ContainerNotFound) {
		if err := l.Make(ctx); err != nil {
			return err
		}
		err = acquire()
	}
	if bloberror.HasCode(err, bloberror.LeaseAlreadyPresent) {
		return link.ErrLockHeld
	}
	return classify(call, err)
}

// Make makes the container and the blob unless they exist. Errors: link.ErrUnavailable.
func (l *Lock) Make(ctx context.Context) error {
	const createContainer, createBlob = "CreateContainer", "CreateBlob"
	called, _ := withCall(ctx, createContainer)
	_, err := l.container.Create(called, nil)
	if err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
		return classify(createContainer, err)
	}
	called, _ = withCall(ctx, createBlob)
	_, err = l.blob.UploadBuffer(called, nil, &blockblob.UploadBufferOptions{
		AccessConditions: &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
		},
	})
	// A blob that is under lease answers in its own way.
	if err != nil && !bloberror.HasCode(err, bloberror.BlobAlreadyExists, bloberror.LeaseIDMissing) {
		return classify(createBlob, err)
	}
	return nil
}

// Check asks whether the lock's container is there. Errors: link.ErrUnavailable.
func (l *Lock) Check(ctx context.Context) error {
	const call = "GetContainer"
	ctx, _ = withCall(ctx, call)
	_, err := l.container.GetProperties(ctx, nil)
	return classify(call, err)
}
