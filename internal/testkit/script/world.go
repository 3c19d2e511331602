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
				if start, _ := w.judge.Start(now, l); same.Key == ask.Key && start.Before(from) { // a call whose limits do not fit is refused
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
		return w.told(c, now, a)
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
	return w.told(c, now, a)
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
	w.log(c.Asks[0].Key).all.Add(a.Added, c.N)
	keys := []counter.Key{c.Asks[0].Key}
	w.taken[i] = hit{at: a.Added, n: c.N, keys: keys, added: keys, call: c}
	return nil
}

// counted holds a Count to what the log says.
func (w *world) counted(c Call, now time.Time, n counter.Count) error {
	fine, err := w.judge.Ladder.Finest(c.Window)
	if err != nil {
		return err
	}
	log := &w.log(c.Asks[0].Key).all
	g := w.judge.Ladder.At(fine).Width
	least, most := log.Since(now.Add(-c.Window)), log.Since(now.Add(-c.Window-w.judge.Skew-g))
	if n.High < least || n.High > most || n.Low > n.High || n.Low > least {
		return fmt.Errorf("count of %s is %+v, want %d to %d", c.Window, n, least, most)
	}
	if whole := log.Since(now.Add(-c.Window + w.judge.Skew + g)); n.Low < whole {
		return fmt.Errorf("count of %s is %+v, but %d lie wholly inside", c.Window, n, whole)
	}
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
	binds := false
	for i := range peek.Asks {
		peek.Asks[i].Charge = false
	}
	for _, s := range a.States {
		if err := w.state(peek, now, 0, counter.Verdict{Allowed: s.RetryAfter == 0}, s, false); err != nil {
			return err
		}
		binds = binds || s.Key == v.Key && s.Limit == v.Limit && s.Remaining == v.Remaining && s.RetryAfter == v.RetryAfter && s.ResetAfter == v.ResetAfter
	}
	if !binds {
		return fmt.Errorf("%s of %s is told, and no state agrees: %+v", v.Limit, v.Key.Feature, a.States)
	}
	return w.remaining(peek, now, a)
}

// refunded removes n hits of call i from the logs of its keys.
func (w *world) refunded(i int, n int64) {
	h := w.taken[i]
	for _, k := range h.keys {
		log := w.log(k)
		if i < log.credited { // a caller's mistake: the hits may have been given back
			w.open = true
			return
		}
		if slices.ContainsFunc(log.idle, func(f time.Time) bool { return !h.at.After(f.Add(w.judge.Skew)) }) {
			w.open = true
			return
		}
		if w.forgotten(log, h.at) {
			continue
		}
		log.all.Remove(h.at, n)
		if !slices.Contains(h.added, k) {
			log.admitted.Remove(h.at, n)
		}
	}
}

// forgotten reports whether a hit counts as a hit from before a Forget, by the label
// of the Forget. A hit just after the Forget may count so too; then too much is
// counted, never too little.
func (w *world) forgotten(log *keyLog, at time.Time) bool {
	return slices.ContainsFunc(log.forgets, func(f time.Time) bool { return !at.After(f.Add(w.judge.Skew)) })
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

// verdict holds an answer to what the log says before the call.
func (w *world) verdict(c Call, now time.Time, a Answer) error {
	want, never := true, false
	for _, ask := range c.Asks {
		if ask.Charge {
			continue
		}
		ok, err := w.judge.Allowed(&w.log(ask.Key).all, now, c.N, ask.Limits)
		if err != nil {
			return err
		}
		want = want && ok
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

// told holds the times of an answer, and the Remaining of a denial, to what the log
// says after the call.
func (w *world) told(c Call, now time.Time, a Answer) error {
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
	binds := false
	for _, s := range a.States {
		if err := w.state(c, now, n, v, s, stale); err != nil {
			return err
		}
		binds = binds || s.Key == v.Key && s.Limit == v.Limit && s.Remaining == v.Remaining && s.RetryAfter == v.RetryAfter && s.ResetAfter == v.ResetAfter
	}
	if !binds && len(a.States) > 0 {
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
		room, _, err := w.judge.Room(log, now, 0, s.Limit)
		if err != nil {
			return err
		}
		if w.local && s.Remaining != room || s.RetryAfter > 0 && s.Remaining >= max(1, n) {
			return fmt.Errorf("denied, and remaining of %s is %d, the log says %d", s.Limit, s.Remaining, room)
		}
	}
	until, least, err := w.judge.Empty(log, now, s.Limit)
	if err != nil {
		return err
	}
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
		for _, ask := range asks {
			if ok, _ := w.judge.Allowed(&w.log(ask.Key).all, at, n, ask.Limits); !ok {
				return false
			}
		}
		return true
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
