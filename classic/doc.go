// Package classic has the limiters of the textbooks, to compare with the
// library's own on a log of yours, and to use where a textbook limiter is
// enough.
//
//	store, err := classic.Memory(classic.Config{})
//	l, err := classic.NewTokenBucket(counter.Limit{Max: 100, Per: time.Minute}, 10, store)
//	v, err := l.Take(ctx, counter.Key{Event: "api", Feature: "user:7"}, 1)
//
// With a Max of 100 and a burst of 100: the most hits in a true window of
// length Per, wherever the window begins and both ends included; the cost of a
// call; and the state of a key:
//
//	FixedWindow     200   1 read, 1 write                    a counter a window
//	FixedSlots      200   1 read, 1 write                    three counters
//	FirstHitWindow  199   1 read, 1 write                    one counter
//	SlidingLog      100   3 or 4 reads, 3 writes or none     every hit
//	SlidingCounter  199   1 read, 1 write                    two counters
//	SlidingDecay    200   1 read, 1 write                    one counter
//	RequestDecay    200   1 read, 1 write, also if denied    one counter
//	TokenBucket     200   1 read, 1 write                    one counter
//	TokenShaper     200   1 read, 1 write                    one instant
//	GCRA            200   1 read, 1 write                    one instant
//	LeakyMeter      200   1 read, 1 write                    one counter
//	LeakyQueue      101   1 read, 1 write                    one instant
//	TextbookTiers   200   141 reads a day, 6 writes          up to three counters a hit
//
// SlidingLog, which keeps every hit, holds Max in every window, and so does
// LeakyQueue, which lets requests wait, but for a single hit. TokenShaper lets
// requests wait too, after a burst. RequestDecay has a trap, and may admit nothing
// for ever. Package counter holds Max on counters.
//
// Each limiter is a file: its promise and its source, its step in Go for
// memory, and in a second file the same step in Lua for Redis. Limiters with equal
// steps share them. Both calculate in whole numbers, of microseconds and of hits,
// and so agree decision by decision. TextbookTiers need no such step, and can be on
// memcached as well. Package servers makes stores on servers: a program that
// does without them has no client of a server in it.
//
// A state is 100 to 140 bytes on Redis and 150 to 170 in memory, a name of 30
// bytes included; [Measured] tells both, and the cost of all calls.
//
// # Limits and keys
//
// A limit has a Max of up to [MaxHits], and a Per of 10 ms to 366 days in whole
// microseconds; the error of a constructor names the value that is out of
// bounds. Limiters of the same kind and Per share their states on a store: a
// second limiter with another Max finds the history of the first. Config.Prefix
// keeps limiters apart.
//
// # Time
//
// The caller's clock is read once a call and decides everything: a log of 2013
// can be replayed on any store, whose own clock only clears away states that
// ended long ago. Each limiter's doc tells the effect of a clock that goes
// back, or is behind other clocks; Config.Grace is the longest such distance at
// which no state has been forgotten.
//
// Denied hits do not consume.
package classic
