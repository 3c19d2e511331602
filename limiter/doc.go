// Package limiter decides by rules whether an event may happen.
//
// An application names its events, and the kinds of features that limit each event,
// once. Each call then has an event and features:
//
//	c, err := counter.New(store, counter.Config{})
//	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
//		{Event: "signup", Kind: "ip", Limits: counter.MustLimits("5/h, 20/d")},
//		{Event: "signup", Kind: "email", Limits: counter.MustLimits("3/d")},
//	}})
//	v, err := lim.Allow(ctx, "signup", feature.IP(addr), feature.Email(mail))
//	if !v.Allowed { // come back after v.RetryAfter; v.String says why, and when
//
// A program waits for a turn, first come first served, as long as the context lasts:
//
//	v, err := lim.Wait(ctx, "mail", feature.Email(mail)) // nil: admitted, and counted
//
// All rules of the event are a single decision, all or nothing: a hit counts for the
// address and for the mail, or for neither. A decision keeps all promises of a TakeAll
// of package counter: see docs/guarantees.md.
//
// Inside, the rules turn the features of a call into asks, each a key with hits and
// limits. Package limiter/fallback takes all asks at once, and the states in its answer
// become the [Verdict]. A call of Wait first waits in limiter/turns.
//
// Each rule counts on a ladder that fits the limits of the rule. The limits of a
// feature may differ from call to call, by a plan, a tenant or a request, on the same
// counts: see [Rule.LimitsOf] and [Under]. A rule may count another kind in a
// call without a feature of the rule's kind, [Rule.Else], and deny for a while once a
// limit is passed, [Rule.Ban].
//
// # When something is missing
//
// Each rule has a policy for a call without a feature of the rule's kind,
// Rule.IfMissing, and a policy for a store that fails, Rule.OnFailure. Both deny by
// default. Neither case is an error: an error is the caller's mistake or the caller's
// context, and comes with a denying Verdict. A denial because of a failed store has a
// random RetryAfter of about a second, so callers do not come back all at once.
//
// Rules under FailLocal go on without the store. Config.Local is a counter in the
// process: it counts the hits of these rules, and has the hits that the store admitted
// for the Limiter. When the store is back, the hits are added to the store, in the
// buckets of their own time. Such a Limiter has a Close:
//
//	here, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Config().Skew + limiter.DefaultDecideWithin})
//	lim, err := limiter.New(c, limiter.Config{Rules: rules, Local: here, Share: 0.5})
//	...
//	err = lim.Close(ctx) // after the server's Shutdown, and with as much time
//
// # Numbers
//
// Config.Observe hears of every decision. Package metrics/tally counts the decisions,
// finds the most denied keys and has a page of both, and the module metrics/prometheus
// makes metrics. Config.Logger, by default slog.Default, has a line for each change, such
// as a store that is lost or back.
//
// # Tests
//
// Package limitertest has a Limiter on a clock moved by the test, and stores that fail
// on command.
package limiter
