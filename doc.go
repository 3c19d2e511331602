// Package abacus limits events over long windows: sign-ups per address and day,
// mails per user and hour, short links per user and day. It counts on
// memcached, on Redis or in the memory of the process.
//
// The code is in the packages below; this package has only documentation.
//
// # Promises
//
//   - In every window of length W at most N hits are admitted, under any concurrency,
//     delay, pause or crash, while clocks agree within a bound and the store keeps its data.
//   - Denied hits do not consume, and RetryAfter is exact to the width of a bucket.
//   - A failing store is visible: an error or a configured policy, never a silent zero.
//
// docs/guarantees.md states all promises and their limits, docs/design.md the reasons.
//
// # Packages
//
//   - [github.com/abacus-go/abacus/httplimit] is middleware for net/http: client
//     addresses behind proxies, response headers, refunds by outcome.
//   - [github.com/abacus-go/abacus/httpclient] is for calls to services with limits:
//     requests wait as long as the service asks.
//   - [github.com/abacus-go/abacus/limiter] decides by rules per event and feature,
//     with a policy for a store that fails. Most services start with limiter or httplimit.
//   - [github.com/abacus-go/abacus/feature] says who is counted: an address, a
//     mailbox, a user, in one normal form.
//   - [github.com/abacus-go/abacus/limitertest] is for tests of such services: a clock
//     that the test moves, and a store that fails on command.
//   - [github.com/abacus-go/abacus/counter] counts and limits keys, without rules.
//   - [github.com/abacus-go/abacus/backend/memory], [github.com/abacus-go/abacus/backend/redis]
//     and [github.com/abacus-go/abacus/backend/memcache] are the stores.
//   - [github.com/abacus-go/abacus/backend] is for authors of stores;
//     [github.com/abacus-go/abacus/backend/backendtest] tests a new store.
//   - [github.com/abacus-go/abacus/tiers] computes the buckets of a window.
//   - [github.com/abacus-go/abacus/classic] has the limiters of textbooks, for comparison.
//
// # Example
//
// Two sign-ups a minute and a hundred a day, for each address:
//
//	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
//	if err != nil {
//		return err
//	}
//	key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
//	v, err := c.Take(ctx, key, 1, counter.MustLimits("2/m, 100/d"))
//	if err != nil {
//		return err // errors.Is(err, counter.ErrStore) if the store failed
//	}
//	if !v.Allowed {
//		return fmt.Errorf("too many sign-ups, try again in %v", v.RetryAfter)
//	}
package abacus
