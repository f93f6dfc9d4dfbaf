package storage

// ReapConcurrency lets the benchmark do as Reap does.
const ReapConcurrency = reapConcurrency
