package counter

import "sync/atomic"

// Stats is what a [Counter] has met since it was made, besides answers. All of
// it is rare on a store that is well; a number that grows is worth an alarm.
type Stats struct {
	// Waited is the number of calls that waited for others of the same key of
	// this process before they asked the store. The memory store has none.
	Waited int64
	// LateTries is the number of tries by ticket that were confirmed only after
	// Config.Settle, and taken back: the store, or the link to it, is slow.
	LateTries int64
	// LooksAgain is the number of looks by callers that others who were about
	// to be refused had refused: crowds at the end of a bucket, or under several
	// limits.
	LooksAgain int64
	// StaleLabels is the number of calls that were labelled anew, because the
	// memory store had dropped what their label's window holds: the process
	// had been stopped.
	StaleLabels int64
	// TakingBackFailed is the number of takings back, of hits that were refused
	// or came too late and of refunds, that the store did not confirm: each can
	// leave hits that deny others until they age out.
	TakingBackFailed int64
}

// stats are the counters behind [Stats].
type stats struct {
	waited, lateTries, looksAgain, staleLabels, takingBackFailed atomic.Int64
}

// Stats is a snapshot; its numbers need not fit together to the last one.
func (c *Counter) Stats() Stats {
	return Stats{
		Waited:           c.stats.waited.Load(),
		LateTries:        c.stats.lateTries.Load(),
		LooksAgain:       c.stats.looksAgain.Load(),
		StaleLabels:      c.stats.staleLabels.Load(),
		TakingBackFailed: c.stats.takingBackFailed.Load(),
	}
}
