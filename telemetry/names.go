package telemetry

// The names under which Application Insights gets what is not a metric. Charts, alerts and docs use them, and a test
// holds both sides to these lists. The names of the metrics are in metrics.go.
const (
	// EventReaperRun is one run of the reaper, by Result.
	EventReaperRun = "ReaperRun"
	// EventStorageUnavailable says that storage has failed several calls in a row.
	EventStorageUnavailable = "StorageUnavailable"
	// EventStorageRecovered says that it answers again.
	EventStorageRecovered = "StorageRecovered"

	// PropertyResult is what a run came to: one of the Result values.
	PropertyResult = "Result"
	// PropertyComplete is "true" where a run reached the end of what was due.
	PropertyComplete = "Complete"
	// PropertyTarget is the host name of a storage service.
	PropertyTarget = "Target"
	// PropertyOperation names a storage call, such as "GetEntity ShortUrls".
	PropertyOperation = "Operation"
	// PropertyResultCode is the HTTP status of a storage call, or "timeout", "canceled" or "unreachable".
	PropertyResultCode = "ResultCode"
	// ResultCanceled is the result code of a call that its caller gave up.
	ResultCanceled = "canceled"
	// ResultTimeout is that of a call that was not answered in time.
	ResultTimeout = "timeout"
	// ResultNoToken is that of a call that was not made, since the identity gave no token for it.
	ResultNoToken = "no token"
	// ResultUnreachable is that of a call that found no connection, or lost it.
	ResultUnreachable = "unreachable"
	// PropertyErrorCode is the storage service's own code for what went wrong, such as "ServerBusy".
	PropertyErrorCode = "ErrorCode"
	// PropertyInvocationID is the Functions host's id of an invocation.
	PropertyInvocationID = "InvocationId"
	// PropertyTry says which try of a storage call it was, from "2" on.
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

	// TypeTable and TypeBlob are the types of dependencies, in Application Insights' own words.
	TypeTable = "Azure table"
	TypeBlob  = "Azure blob"

	// ResultDone is a run that went to its end, or up to its time limit.
	ResultDone = "done"
	// ResultFailed is a run that was cut short by an error.
	ResultFailed = "failed"
	// ResultHeld is a run that did nothing, since another instance was reaping.
	ResultHeld = "held"
	// ResultStopped is a run that ended with its process.
	ResultStopped = "stopped"
)

// All names that are sent, by kind.
var (
	Events     = []string{EventReaperRun, EventStorageUnavailable, EventStorageRecovered}
	Properties = []string{PropertyResult, PropertyComplete, PropertyTarget, PropertyOperation, PropertyResultCode,
		PropertyErrorCode, PropertyInvocationID, PropertyTry}
	Measurements = []string{MeasurementDeleted, MeasurementDropped, MeasurementFailed, MeasurementBacklog,
		MeasurementDuration, MeasurementOutage, MeasurementFailedCalls}
	Types   = []string{TypeTable, TypeBlob}
	Results = []string{ResultDone, ResultFailed, ResultHeld, ResultStopped}
)
