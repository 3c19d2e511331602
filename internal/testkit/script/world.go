package script

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
)

// world is the true history, as the oracle keeps it.
type world struct {
	judge  oracle.Judge
	logs   map[counter.Key]*keyLog
	taken  []hit         // by call
	settle time.Duration // of the Counter's Config
	shared bool          // with callers whose clocks are later: the store may have dropped what an addat needs

	atomic bool // the store has an atomic step
	exact  bool // Remaining of an admitted call is exact, and not a lower bound
	local  bool // denials are not remembered

	denied map[string]time.Time // labels of denials, by call: may be remembered for a second

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
	credited int         // the calls until the last credit
}

type hit struct {
	at      time.Time
	n       int64
	keys    []counter.Key // nil: nothing to refund
	added   []counter.Key // of these, by an addat or a charge: no hits that were let in
	call    Call
	settled bool
}

func (w *world) log(k counter.Key) *keyLog {
	if w.logs[k] == nil {
		w.logs[k] = &keyLog{}
	}
	return w.logs[k]
}

// hold checks an answer, and writes down what it did.
func (w *world) hold(i int, c Call, now time.Time, a Answer) error {
	w.taken = append(w.taken, hit{call: c})
	if w.open {
		return nil
	}
	switch c.Verb {
	case "take", "peek", "takeall", "charge":
		return w.decided(i, c, now, a)
	case "add":
		w.log(c.Asks[0].Key).add(now, c.N)
	case "addat":
		return w.addedAt(i, c, a)
	case "series":
		return w.series(c, now, a.Series)
	case "count":
		return w.counted(c, now, a.Count)
	case "refund":
		if of := &w.taken[c.N]; a.Refused != of.settled {
			return fmt.Errorf("refused: %v, settled before: %v", a.Refused, of.settled)
		} else if !of.settled {
			w.refunded(int(c.N), of.n)
			of.keys = nil
		}
	case "settle":
		return w.settled(c, now, a)
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

// add records hits that happen now.
func (l *keyLog) add(now time.Time, n int64) {
	l.all.Add(now, n)
	if l.newest.Before(now) {
		l.newest = now
	}
}

// credit removes the newest hits of each key of call i, within the longest window: its
// oldest bucket, of the finest tier for the window, counts whole.
func (w *world) credit(i int, c Call, now time.Time) {
	for _, ask := range c.asks() {
		from := now
		for _, same := range c.Asks {
			for _, l := range same.Limits {
				if start := w.judge.Start(now, l); same.Key == ask.Key && start.Before(from) {
					from = start
				}
			}
		}
		log := w.log(ask.Key)
		for left := -ask.N; left > 0; {
			newest, any := log.all.Newest(from)
			if !any {
				break
			}
			n := min(left, log.all.Since(newest))
			log.all.Remove(newest, n)
			if let := min(n, log.admitted.Count(newest, newest)); let > 0 {
				log.admitted.Remove(newest, let)
			}
			left -= n
		}
		log.credited = i
	}
}

// decided holds the verdict of call i.
func (w *world) decided(i int, c Call, now time.Time, a Answer) error {
	if c.N < 0 {
		w.credit(i, c, now)
		c.N, c.Verb = 0, "peek" // which is answered by the counts afterwards
	}
	if err := w.verdict(c, now, a); err != nil {
		return err
	}
	charge := c.Verb == "charge"
	counted := charge && c.N > 0 || a.Verdict.Allowed && c.Verb != "peek" && !charge
	if at := a.Verdict.At(); counted != at.Equal(now) || !counted && !at.IsZero() {
		return fmt.Errorf("the label is %v, want the reading of the clock of a call that counts", at)
	}
	if !counted {
		return w.checkTimes(c, now, a)
	}
	taken := &w.taken[i]
	for _, ask := range c.Asks {
		if slices.Contains(taken.keys, ask.Key) {
			continue
		}
		taken.at, taken.n = now, c.N
		taken.keys = append(taken.keys, ask.Key)
		w.log(ask.Key).add(now, c.N)
		if charge || ask.Charge {
			taken.added = append(taken.added, ask.Key)
		} else {
			w.log(ask.Key).admitted.Add(now, c.N)
		}
	}
	for _, ask := range c.Asks {
		for _, l := range ask.Limits {
			if slices.Contains(taken.added, ask.Key) {
				break
			}
			admitted := &w.log(ask.Key).admitted
			if !l.Period.IsZero() {
				start, end := l.Period.Span(now.UnixNano())
				if n := admitted.Count(time.Unix(0, start), time.Unix(0, end-1)); n > l.Max {
					return fmt.Errorf("%d admitted in a period of %s", n, l)
				}
				continue
			}
			if admitted.Count(now.Add(-l.Per), now.Add(l.Per)) <= l.Max {
				continue // in whatever window
			}
			if worst := admitted.Worst(l.Per); worst > l.Max {
				return fmt.Errorf("%d admitted within a window of %s", worst, l)
			}
		}
	}
	return w.checkTimes(c, now, a)
}

// addedAt holds the answer of an addat: hits count within the Keep of the widest
// tier, and may be refused beyond.
func (w *world) addedAt(i int, c Call, a Answer) error {
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
	// A window may still reach into a bucket without the hits, and holds none of them.
	w.open = a.Partly && w.shared && c.Back > w.judge.Ladder.At(0).Keep
	w.log(c.Asks[0].Key).all.Add(a.Added, c.N)
	keys := []counter.Key{c.Asks[0].Key}
	w.taken[i] = hit{at: a.Added, n: c.N, keys: keys, added: keys, call: c}
	return nil
}

// settled holds the answer of a settle, and writes down what it did.
func (w *world) settled(c Call, now time.Time, a Answer) error {
	of := &w.taken[c.N]
	past := of.call.Verb == "addat" // has no verdict
	if want := of.settled || of.keys == nil || past; a.Refused || want {
		if a.Refused != want {
			return fmt.Errorf("refused: %v, the log says %v", a.Refused, want)
		}
		of.settled = of.settled || of.n > 0 && !past // also a refund is refused then
		return nil
	}
	of.settled, w.taken[len(w.taken)-1].settled = true, true
	if c.Used < of.n {
		w.refunded(int(c.N), of.n-c.Used)
	}
	for _, k := range of.keys {
		if c.Used > of.n {
			w.log(k).add(now, c.Used-of.n)
		}
	}
	of.keys = nil
	if w.open {
		return nil
	}
	v, peek := a.Verdict, Call{Verb: "peek", Asks: append(slices.Clone(of.call.Asks), of.call.Asks...)} // ResetAfter as of several keys
	if v.N() != c.Used {
		return fmt.Errorf("the verdict counts %d, want %d", v.N(), c.Used)
	}
	for i := range peek.Asks {
		peek.Asks[i].Charge = false
	}
	for _, s := range a.States {
		if err := w.state(peek, now, 0, counter.Verdict{Allowed: s.RetryAfter == 0}, s, false); err != nil {
			return err
		}
	}
	return cmp.Or(a.binds(), w.remaining(peek, now, a))
}

// refunded removes n hits of call i from the logs of its keys.
func (w *world) refunded(i int, n int64) {
	h := w.taken[i]
	for _, k := range h.keys {
		log := w.log(k)
		// By the label of a Forget, or just after it, a hit counts as one from before; then
		// too much is counted, never too little.
		before := func(f time.Time) bool { return !h.at.After(f.Add(w.judge.Skew)) }
		if i < log.credited || slices.ContainsFunc(log.idle, before) { // a caller's mistake: the hits may have been given back
			w.open = true
			return
		}
		if slices.ContainsFunc(log.forgets, before) {
			continue
		}
		log.all.Remove(h.at, n)
		if !slices.Contains(h.added, k) {
			log.admitted.Remove(h.at, n)
		}
	}
}
