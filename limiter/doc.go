// Package limiter answers: may this happen?
//
// An application names its events and the kinds of features that limit them,
// once; each call then has an event and features:
//
//	c, err := counter.New(store, counter.Config{})
//	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
//		{Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/h, 20/d")},
//		{Event: "signup", Kind: "email", Limits: counter.MustLimits("3/d")},
//	}})
//	v, err := lim.Allow(ctx, "signup", limiter.IP(addr), limiter.Email(mail))
//	if !v.Allowed { // come back after v.RetryAfter
//
// A program that waits for its turn, first come first served, as long as its
// context lasts:
//
//	v, err := lim.Wait(ctx, "mail", limiter.Email(mail)) // nil: admitted, and counted
//
// All rules of the event are one decision, all or nothing: a hit counts for the
// address and for the mail, or for neither. A decision keeps all promises of a
// TakeAll of package counter: see docs/guarantees.md.
//
// Each rule counts on a ladder of its own, which fits its limits. The limits of a
// feature may differ from call to call, by a plan, a tenant or a request, on the
// same counts: see [Rule.LimitsOf] and [Feature.Under]. A rule may count another
// kind where one is missing, [Rule.Else], and deny for a while once a limit is
// passed, [Rule.Ban].
//
// # When something is missing
//
// Each rule has a policy for a call without a feature of the rule's kind,
// Rule.IfMissing, and a policy for a store that fails, Rule.OnFailure. Both
// deny by default. Neither case is an error: an error is the caller's mistake
// or the caller's context, and comes with a Verdict that denies. A denial
// because of a failed store has a random RetryAfter of about a second, so that
// callers do not come back all at once.
//
// Rules under FailLocal go on without the store: a counter in this process,
// Config.Local, counts their hits, and knows the hits that the store has
// admitted for this Limiter. When the store is back, the hits are added to it in
// the seconds in which they happened. Such a Limiter has a Close:
//
//	here, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Skew() + limiter.DefaultDecideWithin})
//	lim, err := limiter.New(c, limiter.Config{Rules: rules, Local: here, Share: 0.5})
//	defer lim.Close()
//
// # Numbers
//
// Config.Observe hears of every decision, and the module metrics/prometheus makes
// metrics of them. Config.Tally has the Limiter count decisions, and find the keys
// that are denied most, for [Limiter.Tally] and httplimit.Status. Config.Logger is
// told of changes, such as a store that is lost or back.
//
// # Tests
//
// Package limitertest has a Limiter on a clock that a test moves, and stores that
// fail on command.
package limiter
