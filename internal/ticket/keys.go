package ticket

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// A call may have several keys: enforced keys, which are taken in one order by all
// callers, and soft keys.

// Order returns the indices of the keys that are not soft in the order of their
// names, the same for all callers: in random orders racing calls would refuse
// each other, or wait for each other for ever.
func (c *Call) Order() (order []int) {
	for i := range c.Keys {
		if !c.Keys[i].Soft {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return slices.Compare(c.Keys[a].Key, c.Keys[b].Key) })
	return order
}

// Bounded reports whether a limit of the key can deny hits: of a key that is charged, no
// limit can.
func Bounded(key *backend.TakeKey) bool {
	return slices.ContainsFunc(key.Windows, func(w backend.Window) bool { return w.Max < backend.MaxCount })
}

// chargedLast moves the keys that can deny nothing to the end of an order: a call that
// another key denies has not charged them. They refuse no one, so that callers need no
// common order for them.
func (c *Call) chargedLast(order []int) {
	slices.SortStableFunc(order, func(a, b int) int {
		switch first := Bounded(&c.Keys[a]); {
		case first == Bounded(&c.Keys[b]):
			return 0
		case first:
			return -1
		}
		return 1
	})
}

// Settle is the longest time of a try of the call; zero: no bound. Of keys with
// different Settle the shortest counts, since hits of one call are read by both.
func (c *Call) Settle() (settle time.Duration) {
	for _, plan := range c.Plans {
		if s := time.Duration(plan.settle); s > 0 && (settle == 0 || s < settle) {
			settle = s
		}
	}
	return settle
}

// look answers for keys, which are indices of the call, by reading alone. With
// details, look reads until the answer is exact for an allowed call as well.
func (p *Protocol) look(ctx context.Context, c *Call, keys []int, deadline time.Time, details bool) (Finding, error) {
	looks, errs := make([]Finding, len(keys)), make([]error, len(keys))
	SideBySide(len(keys), func(i int) {
		s := p.survey(c, keys[i])
		s.request.Deadline = deadline
		looks[i], errs[i] = s.look(ctx, details, !c.Peek && p.memory.Contended(s.key.Key, c.Label()))
	})
	all := Finding{Allowed: true, looked: true}
	for i, f := range looks {
		if errs[i] != nil {
			return Finding{looked: true}, &KeyError{keys[i], errs[i]}
		}
		all.Allowed = all.Allowed && f.Allowed
		all.contended = all.contended || f.contended
		all.byOlder = all.byOlder || f.byOlder
		all.over = all.over || f.over
	}
	return all, nil
}

// refused completes a try of which f is the refusal of one key: the keys taken before
// are given back, and the remaining keys are looked at, so that the answer speaks of
// all keys. If the look fails, the answer speaks of the asked keys only.
func (p *Protocol) refused(ctx context.Context, c *Call, f Finding, taken []*survey, rest []int) (Finding, error) {
	others := Finding{Allowed: true}
	var err error
	var wg sync.WaitGroup
	if len(rest) > 0 {
		wg.Go(func() { others, err = p.look(ctx, c, rest, c.Grace, true) })
	}
	failed := takeBackAll(ctx, taken)
	wg.Wait()
	switch {
	case failed == nil && errors.Is(err, backend.ErrStaleLabel):
		return Finding{}, err // all hits are taken back, and the next try needs a new label
	case failed != nil || err != nil:
		f = Finding{contended: true} // nobody knows how long the remaining hits will stay
	default:
		f = Finding{room: f.room && others.Allowed, byOlder: f.byOlder || others.byOlder, over: f.over || others.over, contended: f.contended}
	}
	for i := range c.Keys {
		f.contended = f.contended || p.memory.Contended(c.Keys[i].Key, c.Label())
	}
	return f, nil
}

// takeBackAll takes back the hits of several keys, side by side.
func takeBackAll(ctx context.Context, taken []*survey) error {
	errs := make([]error, len(taken))
	SideBySide(len(taken), func(i int) { errs[i] = taken[i].takeBack(ctx) })
	return errors.Join(errs...)
}

// judgeSoft takes the soft keys, each for itself, after the call is admitted, and
// looks at them for a Peek. Next to the other keys a soft key would count hits of calls
// that are refused, and tell callers that it is full while it is not. A key that fails
// stays unknown.
func (p *Protocol) judgeSoft(ctx context.Context, c *Call) {
	var wg sync.WaitGroup
	for i := range c.Keys {
		if !c.Keys[i].Soft {
			continue
		}
		wg.Go(func() {
			f, err := p.survey(c, i).take(ctx) // once: N are the hits of the call
			c.Keys[i].Fits, c.Unknown[i] = f.Allowed, err != nil
		})
	}
	wg.Wait()
}

// SideBySide calls f for 0 to n-1, each in a goroutine of its own, and waits
// for all.
func SideBySide(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
