package counter

import "sync/atomic"

// Stats counts rare events in a [Counter] since its creation. On a healthy
// store the numbers hardly grow; a growing number deserves an alarm.
type Stats struct {
	// Waited is the number of calls that waited for other calls of the same key
	// in this process before asking the store. Calls on the memory store never
	// wait.
	Waited int64
	// LateTries is the number of tries by ticket that were confirmed later than
	// Config.Settle, and taken back: the store, or the link to the store, is
	// slow.
	LateTries int64
	// LooksAgain is the number of looks after a refusal by calls that were
	// about to be refused themselves: crowds at the end of a bucket, or under
	// several limits.
	LooksAgain int64
	// StaleLabels is the number of calls that got a new label because the
	// memory store had dropped buckets of the window: the process had been
	// stopped.
	StaleLabels int64
	// TakingBackFailed is the number of takings back, of refused or late hits
	// and of refunds, without a confirmation from the store. Each can leave
	// hits that deny other calls until they age out.
	TakingBackFailed int64
}

// stats holds the counters behind [Stats].
type stats struct {
	waited, lateTries, looksAgain, staleLabels, takingBackFailed atomic.Int64
}

// Stats returns a snapshot. Its numbers are read one after the other, and may
// be apart by the calls in flight.
func (c *Counter) Stats() Stats {
	return Stats{
		Waited:           c.stats.waited.Load(),
		LateTries:        c.stats.lateTries.Load(),
		LooksAgain:       c.stats.looksAgain.Load(),
		StaleLabels:      c.stats.staleLabels.Load(),
		TakingBackFailed: c.stats.takingBackFailed.Load(),
	}
}
