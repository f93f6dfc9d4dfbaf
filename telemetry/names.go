package telemetry

// Names of what is sent to Application Insights, but for metrics, whose names are in metrics.go.
// Charts, alerts and docs use them, and a test compares both sides with these lists.
const (
	// EventReaperRun is one run of the reaper, by Result.
	EventReaperRun = "ReaperRun"
	// EventStorageUnavailable: storage has failed several calls in a row.
	EventStorageUnavailable = "StorageUnavailable"
	// EventStorageRecovered: it responds again.
	EventStorageRecovered = "StorageRecovered"

	// PropertyResult is the result of a run: one of Results.
	PropertyResult = "Result"
	// PropertyComplete is "true" if a run handled all that was due.
	PropertyComplete = "Complete"
	// PropertyTarget is the host name of a storage service.
	PropertyTarget = "Target"
	// PropertyOperation names a storage call, such as "GetEntity ShortUrls".
	PropertyOperation = "Operation"
	// PropertyResultCode is the HTTP status of a storage call, or one of "timeout", "canceled",
	// "unreachable" and "no token".
	PropertyResultCode = "ResultCode"
	// ResultCanceled is the result code of a call that its caller canceled.
	ResultCanceled = "canceled"
	// ResultTimeout is that of a call without a response in time.
	ResultTimeout = "timeout"
	// ResultNoToken is that of a call that was not sent, because the identity gave no token for it.
	ResultNoToken = "no token"
	// ResultUnreachable is that of a call without a connection, or that lost it.
	ResultUnreachable = "unreachable"
	// PropertyErrorCode is the storage service's own error code, such as "ServerBusy".
	PropertyErrorCode = "ErrorCode"
	// PropertyInvocationID is the Functions host's invocation ID.
	PropertyInvocationID = "InvocationId"
	// PropertyTry is the number of the try of a storage call, from "2" on.
	PropertyTry = "Try"

	// MeasurementDeleted is how many links a run of the reaper deleted.
	MeasurementDeleted = "Deleted"
	// MeasurementDropped is how many expiry rows without a link it deleted.
	MeasurementDropped = "Dropped"
	// MeasurementFailed is how many links it could not delete.
	MeasurementFailed = "Failed"
	// MeasurementBacklog is how long ago, in seconds, the oldest link expired that it left.
	MeasurementBacklog = "BacklogSeconds"
	// MeasurementDuration is how long it took, in milliseconds.
	MeasurementDuration = "DurationMs"
	// MeasurementOutage is how long storage failed, in seconds.
	MeasurementOutage = "OutageSeconds"
	// MeasurementFailedCalls is how many calls failed meanwhile, each try counted.
	MeasurementFailedCalls = "FailedCalls"

	// TypeTable and TypeBlob are the types of dependencies, as Application Insights names them.
	TypeTable = "Azure table"
	TypeBlob  = "Azure blob"

	// ResultDone is a run that reached its end, or its time limit.
	ResultDone = "done"
	// ResultFailed is a run that was cut short by an error.
	ResultFailed = "failed"
	// ResultHeld is a run that did nothing, because another instance was reaping.
	ResultHeld = "held"
	// ResultStopped is a run that ended with its process.
	ResultStopped = "stopped"
)

// All names that are sent, by kind.
var (
	Events     = []string{EventReaperRun, EventStorageUnavailable, EventStorageRecovered}
	Properties = []string{PropertyResult, PropertyComplete, PropertyTarget, PropertyOperation,
		PropertyResultCode,
		PropertyErrorCode, PropertyInvocationID, PropertyTry}
	Measurements = []string{MeasurementDeleted, MeasurementDropped, MeasurementFailed,
		MeasurementBacklog,
		MeasurementDuration, MeasurementOutage, MeasurementFailedCalls}
	Types   = []string{TypeTable, TypeBlob}
	Results = []string{ResultDone, ResultFailed, ResultHeld, ResultStopped}
)
