package script

import (
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// verdict holds an answer to what the log says before the call.
func (w *world) verdict(c Call, now time.Time, a Answer) error {
	want, never := true, false
	for _, ask := range c.Asks {
		if ask.Charge {
			continue
		}
		want = want && w.judge.Allowed(&w.log(ask.Key).all, now, c.N, ask.Limits)
		for _, l := range ask.Limits {
			never = never || c.N > l.Max && c.Verb != "charge"
		}
	}
	v := a.Verdict
	if v.Allowed != want {
		return fmt.Errorf("allowed: %v, the log says %v", v.Allowed, want)
	}
	if v.Allowed != (v.RetryAfter == 0) || never != (v.RetryAfter == counter.Never) {
		return fmt.Errorf("allowed: %v, never: %v, but retry after %s", v.Allowed, never, v.RetryAfter)
	}
	if v.Allowed {
		return w.remaining(c, now, a)
	}
	return nil
}

// remaining holds the Remaining of an admitted call to what the log says.
func (w *world) remaining(c Call, now time.Time, a Answer) error {
	for _, s := range a.States {
		room, least := w.judge.Room(&w.log(s.Key).all, now, c.N, s.Limit)
		switch {
		case w.exact || c.Verb == "peek":
			least = room
		case w.atomic:
			least = 0 // the upper bound of an atomic step is the store's own
		}
		if s.Remaining > room || s.Remaining < least {
			return fmt.Errorf("remaining of %s is %d, the log says %d to %d", s.Limit, s.Remaining, least, room)
		}
	}
	return nil
}

// checkTimes holds the times of an answer, and the Remaining of a denial, to what the log
// says after the call.
func (w *world) checkTimes(c Call, now time.Time, a Answer) error {
	v, n := a.Verdict, c.N
	if c.Verb == "charge" {
		n = 0 // the wait is until no limit is over
	}
	stale := !v.Allowed && w.remembered(c, now)
	charges := func(a counter.Ask) bool { return a.Charge }
	if !v.Allowed && !stale {
		if err := w.wait(now, n, v.RetryAfter, slices.DeleteFunc(slices.Clone(c.Asks), charges)...); err != nil {
			return err
		}
	}
	if v.RetryAfter == counter.Never { // no store was asked
		for _, s := range a.States {
			if s.Remaining != s.Limit.Max || s.ResetAfter != 0 || (s.RetryAfter == counter.Never) != (n > s.Limit.Max && !c.Asks[s.Ask].Charge) {
				return fmt.Errorf("without hope, and yet %+v", s)
			}
		}
		return nil
	}
	for _, s := range a.States {
		if err := w.state(c, now, n, v, s, stale); err != nil {
			return err
		}
	}
	return a.binds()
}

// binds wants one of the states, if there are any, to be that of the verdict.
func (a Answer) binds() error {
	v := &a.Verdict
	told := func(s counter.State) bool {
		return s.Key == v.Key && s.Limit == v.Limit && s.Remaining == v.Remaining && s.RetryAfter == v.RetryAfter && s.ResetAfter == v.ResetAfter
	}
	if len(a.States) > 0 && !slices.ContainsFunc(a.States, told) {
		return fmt.Errorf("%s of %s is told, and no state agrees: %+v", v.Limit, v.Key.Feature, a.States)
	}
	return nil
}

// state holds one State of an answer to a call of weight n. A stale answer is that
// of an earlier call.
func (w *world) state(c Call, now time.Time, n int64, v counter.Verdict, s counter.State, stale bool) error {
	if s.RetryAfter < 0 || s.ResetAfter < 0 {
		return fmt.Errorf("a time below 0: %+v", s)
	}
	log := &w.log(s.Key).all
	charged := c.Asks[s.Ask].Charge
	switch {
	case c.Asks[s.Ask].Key != s.Key:
		return fmt.Errorf("the Ask of %+v is that of %v", s, c.Asks[s.Ask].Key)
	case charged && v.Allowed:
		n = 0 // the wait is until the limit is not over
	case charged && s.RetryAfter != 0:
		return fmt.Errorf("denied, nothing charged, and %+v", s)
	}
	if v.Allowed && !charged {
		if s.RetryAfter != 0 || s.Remaining < v.Remaining {
			return fmt.Errorf("admitted, and %+v binds more than %s of %s", s, v.Limit, v.Key.Feature)
		}
	} else if !stale && (v.Allowed || !charged) {
		if err := w.wait(now, n, s.RetryAfter, counter.Ask{Key: s.Key, Limits: counter.Limits{s.Limit}}); err != nil {
			return fmt.Errorf("%s of %s: %w", s.Limit, s.Key.Feature, err)
		}
		room, _ := w.judge.Room(log, now, 0, s.Limit)
		if w.local && s.Remaining != room || s.RetryAfter > 0 && s.Remaining >= max(1, n) {
			return fmt.Errorf("denied, and remaining of %s is %d, the log says %d", s.Limit, s.Remaining, room)
		}
	}
	until, least := w.judge.Empty(log, now, s.Limit)
	if v.Allowed || len(c.Asks) > 1 {
		least, until = w.byTicket(now, s.Limit, least, until)
	} else {
		least = until
	}
	if stale {
		least = 0
	}
	if s.ResetAfter > until || s.ResetAfter < least {
		return fmt.Errorf("reset after %s under %s, the log says %s to %s", s.ResetAfter, s.Limit, least, until)
	}
	return nil
}

// remembered reports whether a denial may be that of an equal call of the last
// second: it does not have the hits that other calls have since added.
func (w *world) remembered(c Call, now time.Time) bool {
	if w.local {
		return false
	}
	call := fmt.Sprint(c.N, c.Asks)
	if at, ok := w.denied[call]; ok && now.Sub(at).Abs() < time.Second {
		return true
	}
	w.denied[call] = now
	return false
}

// byTicket returns the bounds of a ResetAfter by ticket. A hit of a later clock may
// be unseen, or only its ticket bucket is known, and a key of a denial may have been
// taken and given back.
func (w *world) byTicket(now time.Time, l counter.Limit, least, until time.Duration) (time.Duration, time.Duration) {
	if w.atomic {
		return until, until
	}
	if !l.Period.IsZero() {
		_, end := l.Period.Span(now.UnixNano())
		own := time.Duration(end - now.UnixNano())
		return min(least, own), max(until, own)
	}
	fine, _ := w.judge.Ladder.Finest(l.Per) // the window was counted
	own := w.judge.Reach(l.Per) + w.judge.Ladder.At(fine).Width
	return least - w.judge.Skew, max(until, own) + w.judge.Ladder.At(w.judge.Ladder.Decision(l.Per)).Width
}

// wait holds a RetryAfter to what the log says: a lone caller is let in after that
// time, by whichever clock; at the same clock, an earlier caller is not.
func (w *world) wait(now time.Time, n int64, wait time.Duration, asks ...counter.Ask) error {
	never := slices.ContainsFunc(asks, func(a counter.Ask) bool {
		return slices.ContainsFunc(a.Limits, func(l counter.Limit) bool { return n > l.Max })
	})
	back := func(at time.Time) bool {
		return !slices.ContainsFunc(asks, func(a counter.Ask) bool { return !w.judge.Allowed(&w.log(a.Key).all, at, n, a.Limits) })
	}
	at := now.Add(wait - w.judge.Skew)
	switch free := back(now); {
	case free && !w.local && wait > 0 && wait <= w.judge.Skew:
		// Of a remembered denial, for the slowest clock.
	case free || never:
		if free != (wait == 0) || never != (wait == counter.Never) {
			return fmt.Errorf("retry after %s, though a next call has room: %v, never: %v", wait, free, never)
		}
	case !back(at) || back(at.Add(-1)):
		return fmt.Errorf("retry after %s: then %v, a moment earlier %v", wait, back(at), back(at.Add(-1)))
	}
	return nil
}

// counted holds a Count to what the log says.
func (w *world) counted(c Call, now time.Time, n counter.Count) error {
	fine, _ := w.judge.Ladder.Finest(c.Window) // the window was counted
	log, g := &w.log(c.Asks[0].Key).all, w.judge.Ladder.At(fine).Width
	least, most := log.Since(now.Add(-c.Window)), log.Since(now.Add(-c.Window-w.judge.Skew-g))
	if n.High < least || n.High > most || n.Low > n.High || n.Low > least {
		return fmt.Errorf("count of %s is %+v, want %d to %d", c.Window, n, least, most)
	}
	if whole := log.Since(now.Add(-c.Window + w.judge.Skew + g)); n.Low < whole {
		return fmt.Errorf("count of %s is %+v, but %d lie wholly inside", c.Window, n, whole)
	}
	return nil
}

// series holds the points of a series to what the log says. A point that began
// before the Keep may lack hits that were added late.
func (w *world) series(c Call, now time.Time, points []counter.Point) error {
	last := tiers.Index(now.UnixNano(), c.Window)
	first := tiers.Index(now.Add(-c.Back).UnixNano(), c.Window)
	if int64(len(points)) != last-first+1 {
		return fmt.Errorf("%d points, want %d", len(points), last-first+1)
	}
	var keep time.Duration
	for _, t := range w.judge.Ladder.Tiers() {
		if c.Window%t.Width == 0 {
			keep = t.Keep
		}
	}
	for i, p := range points {
		b := tiers.Bucket{Width: c.Window, Index: first + int64(i)}
		n := w.log(c.Asks[0].Key).all.Count(b.Start(), b.End().Add(-1))
		if !p.Start.Equal(b.Start()) || p.Count > n || p.Count < n && now.Sub(b.Start()) <= keep {
			return fmt.Errorf("point %d is %+v, want %d from %v on", i, p, n, b.Start().UTC())
		}
	}
	return nil
}
