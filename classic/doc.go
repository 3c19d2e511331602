// Package classic has the limiters of the textbooks, beside the library's own, so
// that they can be compared on a log of one's own, and picked where they are enough.
//
//	store, err := classic.Memory(classic.Config{})
//	l, err := classic.NewTokenBucket(counter.Limit{Max: 100, Per: time.Minute}, 10, store)
//	v, err := l.Take(ctx, counter.Key{Event: "api", Feature: "user:7"}, 1)
//
// What each admits at most in a true window of length Per, wherever it begins and
// both ends included, where Max is 100 and so is the burst; what a call costs; and
// what a key holds:
//
//	FixedWindow     200   1 read, 1 write                    a counter a window
//	FixedSlots      200   1 read, 1 write                    three counters
//	SlidingLog      100   3 or 4 reads, 3 writes or none     every hit
//	SlidingCounter  199   1 read, 1 write                    two counters
//	SlidingDecay    200   1 read, 1 write                    one counter
//	TokenBucket     200   1 read, 1 write                    one counter
//	GCRA            200   1 read, 1 write                    one instant
//	LeakyMeter      200   1 read, 1 write                    one counter
//	LeakyQueue      101   1 read, 1 write                    one instant
//	TextbookTiers   200   141 reads a day, 6 writes          up to three counters a hit
//
// Of those that hold Max in every window one keeps every hit, and one lets requests
// wait. Package counter holds it on counters.
//
// Each limiter is one file: what it promises and where it comes from, its step in
// Go for memory, and beside it the same step in Lua for Redis. Both are whole
// numbers, of microseconds and of hits, so they agree decision by decision.
//
// A state is 100 to 140 bytes on Redis and 150 to 170 in memory, a name of 30 bytes
// included; [Measured] tells both, and what calls have cost.
//
// # Limits and keys
//
// A limit has a Max of up to [MaxHits], and a Per of 10 ms to 366 days in whole
// microseconds; the error of a constructor names what is out of bounds. Limiters
// of one kind and one Per on one store are one: a second one with another Max
// finds the history of the first. Config.Prefix keeps them apart.
//
// # Time
//
// The caller's clock is read once a call and decides everything: a log of 2013 can
// be replayed on any store, whose own clock only clears away what is long over.
// What a clock does that goes back, or is behind others', is in each limiter's doc;
// Config.Grace is how far behind it may be without finding something forgotten.
//
// Denied hits do not consume.
package classic
