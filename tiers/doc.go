// Package tiers answers one question: which buckets?
//
// An abacus counts on rods: units, tens, hundreds; to read a number you look
// at a few rods, not at every bead. Here the rods are time. Every hit of a key
// is counted in its second, its minute and its hour (or whatever a [Ladder]
// says), and a count over a window is the sum of a few runs of adjacent
// buckets, a [Cover].
//
// # Buckets
//
// A [Bucket] is the span [Index*Width, (Index+1)*Width) since the Unix epoch,
// without leap seconds, the same in every time zone. Before 1970 the index is
// negative; spans never straddle zero.
//
// # Covers
//
// The cover of a window has an open right edge: the bucket of the window's
// decision tier that holds now is read whole, because it can hold nothing
// later than now. Its oldest bucket, which the window covers only partly, is
// read whole too. So what a cover counts is never less than what the window
// holds, and at most what a window longer by the width of that oldest bucket
// holds. The textbook cover, which adds both ragged edges, is
// [Ladder.Textbook]; it is here to compare with.
//
// The package is pure arithmetic: no clock, no I/O, no state. Everything in it
// is safe for use by many goroutines at once.
package tiers
