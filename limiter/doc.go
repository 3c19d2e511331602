// Package limiter answers: may this happen?
//
// An application names its events and the kinds of features that they are
// limited by, once; then it asks with what it knows of a call:
//
//	c, err := counter.New(store, counter.Config{})
//	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
//		{Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/h, 20/d")},
//		{Event: "signup", Kind: "email", Limits: counter.MustLimits("3/d")},
//	}})
//	v, err := lim.Allow(ctx, "signup", limiter.IP(addr), limiter.Email(mail))
//	if !v.Allowed { // come back after v.RetryAfter
//
// A program that waits for its turn sleeps in between:
//
//	for err == nil && !v.Allowed && v.RetryAfter != counter.Never {
//		time.Sleep(v.RetryAfter)
//		v, err = lim.Allow(ctx, "signup", limiter.IP(addr), limiter.Email(mail))
//	}
//
// All rules of the event are one decision, all or nothing: a hit counts for the
// address and for the mail, or for neither. What is promised of a decision is
// what package counter promises of a TakeAll; docs/guarantees.md has it in full.
//
// # When something is missing
//
// A call that lacks a feature which a rule limits by, and a store that fails,
// follow the rule's policy: Rule.IfMissing and Rule.OnFailure. Both fail closed
// unless the rule says otherwise. Neither is an error: an error is the caller's
// mistake or the caller's context, and its Verdict denies. A call that is denied
// for a store that failed is told to come back in about a second, each caller in
// a time of its own.
package limiter
