// Package tiers computes the buckets of a window.
//
// An abacus counts on rods: units, tens, hundreds; a number is read from a few
// rods, not from every bead. In this package the rods are time. Every hit of a key
// is counted in its second, its minute and its hour (or in the tiers of another
// [Ladder]), and a count over a window is the sum of a few runs of adjacent
// buckets, a [Cover].
//
// # Buckets
//
// A [Bucket] is the span [Index*Width, (Index+1)*Width) since the Unix epoch,
// without leap seconds, the same in every time zone. Before 1970 the index is
// negative; no span straddles zero.
//
// # Covers
//
// The cover of a window has an open right edge: the bucket of the window's
// decision tier that holds now is read whole, because nothing in the bucket is
// later than now. The oldest bucket, of which the window covers only a part, is
// read whole too. So a cover counts at least the hits of the window, and at most
// the hits of a window longer by the width of the oldest bucket.
//
// Ladders and covers are pure arithmetic: no clock, no I/O, no state. A [Period] looks its
// time zone up once. All functions and methods are safe for use by many goroutines at once.
package tiers
