package counter

import (
	"time"
)

// Stats has the numbers of a [Counter] that report whether the conditions of the
// promises hold, and counts of rare events since the creation of the Counter. On
// a healthy store the counts hardly grow; a growing count deserves an alarm.
type Stats struct {
	// Checked is the time of the last [Counter.Check] that a server has answered;
	// the zero time before the first. The numbers of the servers are as old.
	Checked time.Time
	// ClockAhead is the lead of the store's clock over Config.Now, below zero if
	// the store's clock is behind; give or take ClockWithin: half a round trip,
	// and 1.5 s more on memcached, which tells the time in seconds. Of several
	// servers the clock that is furthest apart. Two processes that are both within
	// half of Config.Skew of the store's clock are within Skew of each other: alarm
	// if ClockAhead.Abs() - ClockWithin is above Skew/2. Zero in memory.
	ClockAhead, ClockWithin time.Duration
	// Evictions is the number of keys or items that the servers have evicted
	// between the first Check of the Counter and the last. Check itself tells
	// earlier evictions. Whatever is evicted is forgiven: alarm on the first.
	Evictions int64
	// Restarts is the number of servers that were found restarted, or replaced by
	// another server, between the first Check and the last. A server that was
	// restarted twice between two Checks counts once.
	Restarts int64

	// BucketsAhead is the number of answers with a hit in a bucket that begins
	// later than Config.Now and Config.Skew: the clock of another caller is ahead
	// by more than Skew. On a store with an atomic step each Take and Peek can
	// see such a bucket. By ticket, only calls that look can see such a bucket (a
	// Peek, and a Take of a key denied a moment ago), and only the next bucket of
	// each tier: a part of such hits is seen. Zero in memory.
	BucketsAhead int64

	// Guesses is the number of Takes that went by the memory of the process: of a
	// denial of the last Take of the key (Redis), or of settled buckets
	// (memcached).
	Guesses int64
	// WrongGuesses is the number of Guesses that the store's answer did not bear
	// out. A wrong guess costs time, and changes no verdict.
	WrongGuesses int64

	// LateAnswers is the number of answers of the store that hits were counted,
	// after the call had failed: the hits were undone, but for those in
	// HitsLeft. Growing: Config.Patience is too short.
	LateAnswers int64
	// HitsLeft is the number of additions of failed calls that may stay until
	// they age out, and deny other calls until then: the connection was lost, or
	// the undo was not confirmed.
	HitsLeft int64

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
	// TakingBackFailed is the number of undos, of refused or late hits
	// and of refunds, without a confirmation from the store. Each can leave
	// hits that deny other calls until they age out.
	TakingBackFailed int64
}

// Stats returns a snapshot, and asks no server. Its numbers are read one after
// the other, and may be apart by the calls in flight. LateAnswers and HitsLeft
// are of the store since its creation, whichever Counter made the calls.
func (c *Counter) Stats() Stats {
	c.checks.mu.Lock()
	st := c.checks.seen
	c.checks.mu.Unlock()
	counts, report := &c.protocol.Stats, c.store.Report()
	st.BucketsAhead, st.Waited = counts.BucketsAhead.Load(), c.waited.Load()
	st.Guesses, st.WrongGuesses = counts.Guesses.Load()+report.Guesses, counts.WrongGuesses.Load()+report.WrongGuesses
	st.LateAnswers, st.HitsLeft = report.LateAnswers, report.HitsLeft
	st.LateTries, st.LooksAgain = counts.LateTries.Load(), counts.LooksAgain.Load()
	st.StaleLabels, st.TakingBackFailed = counts.StaleLabels.Load(), counts.TakingBackFailed.Load()
	return st
}
