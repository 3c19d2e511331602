package script

import (
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// world is the true history, as the oracle keeps it.
type world struct {
	judge  oracle.Judge
	logs   map[counter.Key]*keyLog
	taken  []hit         // by call
	settle time.Duration // of the Counter's Config
	shared bool          // with callers whose clocks are later: the store may have dropped what an addat needs

	atomic       bool // the store has an atomic step
	exact        bool // Remaining of an admitted call is exact, and not a lower bound
	exactForgets bool // the store remembers the label of a Forget, not only its bucket

	// open is set when a store may do either of two things: a store need not
	// remember the Forget of an unknown key, and a hit within the skew after the
	// Forget can be refunded or not. The calls after an open state are not judged.
	open bool
}

type keyLog struct {
	all      oracle.Log // every hit that counts
	admitted oracle.Log // hits that Take let in
	newest   time.Time
	forgets  []time.Time
	idle     []time.Time // hits of forgets that may have found nothing
}

type hit struct {
	at    time.Time
	n     int64
	keys  []counter.Key // nil: nothing to refund
	added bool          // by an addat: no hit that was let in
}

func (w *world) log(k counter.Key) *keyLog {
	if w.logs[k] == nil {
		w.logs[k] = &keyLog{}
	}
	return w.logs[k]
}

// hold checks an answer, and writes down what it did.
func (w *world) hold(i int, c Call, now time.Time, a Answer) error {
	w.taken = append(w.taken, hit{})
	if w.open {
		return nil
	}
	switch c.Verb {
	case "take", "peek", "takeall":
		if err := w.verdict(c, now, a); err != nil {
			return err
		}
		if !a.Verdict.Allowed || c.Verb == "peek" {
			return nil
		}
		for _, ask := range c.Asks {
			if slices.Contains(w.taken[i].keys, ask.Key) {
				continue
			}
			w.taken[i].at, w.taken[i].n = now, c.N
			w.taken[i].keys = append(w.taken[i].keys, ask.Key)
			log := w.log(ask.Key)
			log.all.Add(now, c.N)
			log.admitted.Add(now, c.N)
			if log.newest.Before(now) {
				log.newest = now
			}
		}
		for _, ask := range c.Asks {
			for _, l := range ask.Limits {
				if worst := w.log(ask.Key).admitted.Count(now.Add(-l.Per), now.Add(l.Per)); worst > l.Max {
					if worst = w.log(ask.Key).windowWith(now, l.Per); worst > l.Max {
						return fmt.Errorf("%d admitted within a window of %s", worst, l)
					}
				}
			}
		}
	case "add":
		log := w.log(c.Asks[0].Key)
		log.all.Add(now, c.N)
		if log.newest.Before(now) {
			log.newest = now
		}
	case "addat":
		widest := w.judge.Ladder.At(w.judge.Ladder.Len() - 1)
		late := c.Back - widest.Keep
		switch {
		case a.Added.IsZero() && late <= 0 && !w.shared:
			return fmt.Errorf("refused, but within the Keep of %s", widest)
		case a.Added.IsZero():
			return nil
		case late > widest.Width+2*(w.judge.Skew+max(0, w.settle)):
			return fmt.Errorf("not refused, though %s after the Keep of %s", late, widest)
		}
		w.log(c.Asks[0].Key).all.Add(a.Added, c.N)
		w.taken[i] = hit{a.Added, c.N, []counter.Key{c.Asks[0].Key}, true}
	case "count":
		fine, err := w.judge.Ladder.Finest(c.Window)
		if err != nil {
			return err
		}
		log := &w.log(c.Asks[0].Key).all
		g := w.judge.Ladder.At(fine).Width
		least, most := log.Since(now.Add(-c.Window)), log.Since(now.Add(-c.Window-w.judge.Skew-g))
		if a.Count.High < least || a.Count.High > most || a.Count.Low > a.Count.High || a.Count.Low > least {
			return fmt.Errorf("count of %s is %+v, want %d to %d", c.Window, a.Count, least, most)
		}
		if whole := log.Since(now.Add(-c.Window + w.judge.Skew + g)); a.Count.Low < whole {
			return fmt.Errorf("count of %s is %+v, but %d lie wholly inside", c.Window, a.Count, whole)
		}
	case "refund":
		h := w.taken[c.N]
		w.taken[c.N].keys = nil
		for _, k := range h.keys {
			log := w.log(k)
			if w.exactForgets && slices.ContainsFunc(log.idle, func(f time.Time) bool { return !h.at.After(f.Add(w.judge.Skew)) }) {
				w.open = true
				return nil
			}
			if w.forgotten(log, h.at, now) {
				continue
			}
			log.all.Remove(h.at, h.n)
			if !h.added {
				log.admitted.Remove(h.at, h.n)
			}
		}
	case "forget":
		log := w.log(c.Asks[0].Key)
		if log.all.Since(now.Add(-w.judge.Ladder.At(0).Keep)) == 0 {
			log.idle = append(log.idle, now)
		}
		log.all.Reset()
		log.admitted.Reset()
		log.forgets = append(log.forgets, now)
	}
	return nil
}

// forgotten tells whether a hit counts as a hit from before a Forget: by the label,
// or by the finest bucket with a Keep of that length. A hit just after the Forget
// may count so too; then too much is counted, never too little. Beyond every Keep
// there is nothing to refund.
func (w *world) forgotten(log *keyLog, at, now time.Time) bool {
	if w.exactForgets {
		return slices.ContainsFunc(log.forgets, func(f time.Time) bool { return !at.After(f.Add(w.judge.Skew)) })
	}
	kept := w.judge.Ladder.Tiers()
	for i, t := range kept {
		if now.Sub(at) > t.Keep && i < len(kept)-1 {
			continue
		}
		return slices.ContainsFunc(log.forgets, func(f time.Time) bool {
			return tiers.Index(f.UnixNano(), t.Width) >= tiers.Index(at.Add(-w.judge.Skew).UnixNano(), t.Width)
		})
	}
	return true
}

// windowWith is the largest weight of admitted hits in a window that holds at.
func (l *keyLog) windowWith(at time.Time, per time.Duration) int64 {
	var worst int64
	for from := at.Add(-per); !from.After(at); from = from.Add(max(1, per/64)) {
		worst = max(worst, l.admitted.Count(from, from.Add(per)))
	}
	return worst
}

// remaining holds the Remaining of an admitted call to what the log says.
func (w *world) remaining(c Call, now time.Time, a Answer) error {
	for _, s := range a.States {
		room, least, err := w.judge.Room(&w.log(s.Key).all, now, c.N, s.Limit)
		if err != nil {
			return err
		}
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

// verdict holds an answer to what the log says.
func (w *world) verdict(c Call, now time.Time, a Answer) error {
	want, never := true, false
	for _, ask := range c.Asks {
		ok, err := w.judge.Allowed(&w.log(ask.Key).all, now, c.N, ask.Limits)
		if err != nil {
			return err
		}
		want = want && ok
		for _, l := range ask.Limits {
			never = never || c.N > l.Max
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
	if never {
		return nil
	}
	// A lone caller is let in at that time, by whichever clock; at the same clock,
	// an earlier caller is not.
	back := func(at time.Time) bool {
		for _, ask := range c.Asks {
			if ok, _ := w.judge.Allowed(&w.log(ask.Key).all, at, c.N, ask.Limits); !ok {
				return false
			}
		}
		return true
	}
	if at := now.Add(v.RetryAfter - w.judge.Skew); !back(at) || back(at.Add(-1)) {
		return fmt.Errorf("retry after %s: then %v, a moment earlier %v", v.RetryAfter, back(at), back(at.Add(-1)))
	}
	return nil
}
