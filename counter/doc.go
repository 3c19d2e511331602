// Package counter answers: how many, and may there be one more?
//
// A [Counter] counts hits of keys over time windows, on a [Store] that a team
// already runs, and limits them: [Counter.Take] counts a hit if all of a key's
// limits have room for it.
//
//	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
//	v, err := c.Take(ctx, counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, 1, counter.MustLimits("2/m, 100/d"))
//	if !v.Allowed { // come back after v.RetryAfter
//
// # Words
//
// A key is one event of one feature. A limit is at most Max in any window of
// length Per. The ladder is the tiers of buckets that every hit is added to, see
// package tiers. The skew is how far the callers' clocks may be apart.
//
// # Never more than Max
//
// In any window of length Per at most Max hits are admitted, under any
// concurrency, delay, pause or crash, while the callers' clocks agree within
// Config.Skew and the store keeps its buckets. The price: a window is longer by
// the width of its oldest bucket, and by the skew.
//
// # A dropped error fails closed
//
// The zero [Verdict] denies. A denial is not an error; an error is either
// [ErrStore], for which the application needs a policy, or the caller's own.
//
// docs/guarantees.md has the promises in full, docs/design.md the reasons.
package counter
