// Package counter counts and limits events over sliding windows.
//
// A [Counter] counts hits of keys over time windows, on a store that a team
// already runs, and limits them: [Counter.Take] counts a hit if all limits of a
// key have room.
//
//	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
//	v, err := c.Take(ctx, counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, 1, counter.MustLimits("2/m, 100/d"))
//	if !v.Allowed { // come back after v.RetryAfter
//
// The Counter turns keys into the names and windows that a store knows, and the counts
// that come back into a Verdict. What it remembers as denied, it denies without the
// store. A store with an atomic step decides for all keys of a call at once: see package
// backend. Any other store is asked in the order of package internal/ticket, which keeps
// the promise below.
//
// # Words
//
// A key is an event of a feature. A limit admits at most Max hits in any window
// of length Per. A ladder is the list of tiers of buckets that every hit is
// added to, see package tiers. The skew is the largest difference between the
// clocks of two callers. docs/names.md has all terms.
//
// # Never more than Max
//
// In any window of length Per at most Max hits are admitted, under any
// concurrency, delay, pause or crash, while the clocks of the callers agree
// within Config.Skew and the store keeps its buckets. The price: a window is
// longer by the width of its oldest bucket, and by the skew.
//
// # A dropped error fails closed
//
// The zero [Verdict] denies. A denial is not an error. An error is either
// [ErrStore], for which the application needs a policy, or the caller's own.
//
// docs/guarantees.md has the promises in full, docs/design.md the reasons.
package counter
