package eventlog

// Waiting is how many callers wait for a shared transaction.
func (l *Log) Waiting() int { return int(l.lane.length.Load()) }
