package counter_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// A script is a test as data: what serial callers with clocks of their own did,
// one call a line. A failing script is printed, and "-script FILE" plays one.
//
//	ladder 1s:1d, 1m:1d, 1h:1d
//	skew 100ms
//	timeout 50ms
//	0 take a/x 1 7/m,10/h
//	1500000000 takeall 2 a/x=7/m b/y=9/h
//	1500000001 refund 1
//
// A call begins with the caller's clock, in nanoseconds after scriptStart, and
// a refund names the call, by its place from 0, whose verdict it gives back.
type script struct {
	ladder        tiers.Ladder
	skew, timeout time.Duration // below zero: none
	calls         []call
}

type call struct {
	at     int64
	verb   string // take, peek, takeall, add, count, refund, forget
	n      int64  // weight, or of a refund the call
	asks   []counter.Ask
	window time.Duration // of a count
}

var scriptStart = time.Date(2026, 2, 28, 21, 0, 0, 0, time.UTC)

func (s script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ladder %s\nskew %s\ntimeout %s\n", s.ladder, s.skew, s.timeout)
	for _, c := range s.calls {
		fmt.Fprintf(&b, "%d %s", c.at, c.verb)
		if c.verb != "count" && c.verb != "forget" {
			fmt.Fprintf(&b, " %d", c.n)
		}
		for _, a := range c.asks {
			fmt.Fprintf(&b, " %s/%s", a.Key.Event, a.Key.Feature)
			if len(a.Limits) > 0 {
				fmt.Fprintf(&b, "=%s", strings.ReplaceAll(a.Limits.String(), " ", ""))
			}
		}
		if c.verb == "count" {
			fmt.Fprintf(&b, " %s", c.window)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func parseScript(text string) (s script, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "ladder":
			s.ladder, err = tiers.Parse(rest)
		case "skew":
			s.skew, err = time.ParseDuration(rest)
		case "timeout":
			s.timeout, err = time.ParseDuration(rest)
		default:
			var c call
			c, err = parseCall(strings.Fields(lines.Text()))
			s.calls = append(s.calls, c)
		}
		if err != nil {
			return s, fmt.Errorf("%q: %w", lines.Text(), err)
		}
	}
	return s, lines.Err()
}

func parseCall(f []string) (c call, err error) {
	if len(f) < 3 {
		return c, fmt.Errorf("%d words", len(f))
	}
	if c.at, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		return c, err
	}
	c.verb, f = f[1], f[2:]
	if c.verb != "count" && c.verb != "forget" {
		if c.n, err = strconv.ParseInt(f[0], 10, 64); err != nil {
			return c, err
		}
		f = f[1:]
	}
	if c.verb == "count" {
		if c.window, err = time.ParseDuration(f[1]); err != nil {
			return c, err
		}
		f = f[:1]
	}
	for _, word := range f {
		key, limits, limited := strings.Cut(word, "=")
		var a counter.Ask
		a.Key.Event, a.Key.Feature, _ = strings.Cut(key, "/")
		if limited {
			if a.Limits, err = counter.ParseLimits(limits); err != nil {
				return c, err
			}
		}
		c.asks = append(c.asks, a)
	}
	return c, nil
}

// randomScript makes calls on a few keys under a few limits that crowd them.
// Time goes on in steps of every size, often to just before, at or after a
// bucket's edge, and callers' clocks are apart by skew.
func randomScript(r *rand.Rand, ladder tiers.Ladder, skew, timeout time.Duration, n int) script {
	s := script{ladder: ladder, skew: skew, timeout: timeout}
	var windows []time.Duration
	for _, w := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 5 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
		if _, err := ladder.Finest(w); err == nil {
			windows = append(windows, w)
		}
	}
	limits := func() counter.Limits {
		var l counter.Limits
		for range 1 + r.IntN(3) {
			l = append(l, counter.Limit{Max: int64(1 + r.IntN(12)), Per: windows[r.IntN(len(windows))]})
		}
		return l
	}
	keys := []counter.Key{{Event: "a", Feature: "x"}, {Event: "a", Feature: "y"}, {Event: "b", Feature: "x"}}
	usual := map[counter.Key]counter.Limits{}
	for _, k := range keys {
		usual[k] = limits()
	}
	ask := func() counter.Ask {
		k := keys[r.IntN(len(keys))]
		if r.IntN(5) == 0 {
			return counter.Ask{Key: k, Limits: limits()}
		}
		return counter.Ask{Key: k, Limits: usual[k]}
	}
	now := int64(0)
	for len(s.calls) < n {
		switch r.IntN(8) {
		case 0: // to an edge, or near it
			w := ladder.At(r.IntN(ladder.Len())).Width
			next := (tiers.Index(scriptStart.UnixNano()+now, w)+1)*int64(w) - scriptStart.UnixNano()
			now = max(now, next+int64(r.IntN(3)-1)*int64(r.IntN(2)*int(time.Millisecond)))
		case 1: // out of a window, or nearly
			now += max(0, int64(windows[r.IntN(len(windows))])-int64(r.IntN(2))*int64(time.Second))
		case 2, 3:
			now += r.Int64N(int64(windows[r.IntN(len(windows))])/4 + 1)
		case 4, 5:
			now += r.Int64N(int64(2 * time.Second))
		}
		c := call{at: now, verb: "take", n: 1 + int64(r.IntN(4)/3*r.IntN(12)), asks: []counter.Ask{ask()}}
		if skew > 0 {
			c.at += r.Int64N(int64(skew) + 1)
		}
		switch r.IntN(20) {
		case 0, 1:
			c.verb = "peek"
		case 2, 3, 4:
			c.verb, c.asks = "takeall", append(c.asks, ask())
			if r.IntN(3) == 0 {
				c.asks = append(c.asks, ask())
			}
		case 5:
			c.verb, c.asks[0].Limits = "add", nil
		case 6, 7:
			c.verb, c.window, c.asks[0].Limits = "count", windows[r.IntN(len(windows))], nil
		case 8, 9, 10:
			if len(s.calls) == 0 {
				continue
			}
			c.verb, c.n, c.asks = "refund", int64(len(s.calls)-1-r.IntN(min(len(s.calls), 6))), nil
		case 11:
			if r.IntN(4) > 0 {
				continue
			}
			c.verb, c.asks[0].Limits = "forget", nil
		}
		s.calls = append(s.calls, c)
	}
	return s
}

// answer is what a call of a script came back with.
type answer struct {
	verdict counter.Verdict
	states  []counter.State
	count   counter.Count
}

// play runs s on a store and holds every answer to the oracle. It returns the
// answers, and the first promise that was broken.
func (s script) play(store counter.Store) ([]answer, error) {
	var now time.Time
	c, err := counter.New(store, counter.Config{Ladder: s.ladder, Skew: s.skew, Timeout: s.timeout, Now: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	slack := max(0, s.skew) + max(0, s.timeout)
	w := world{judge: oracle.Judge{Ladder: s.ladder, Slack: slack}, skew: max(0, s.skew), logs: map[counter.Key]*keyLog{}}
	var answers []answer
	for i, call := range s.calls {
		now = scriptStart.Add(time.Duration(call.at))
		var a answer
		var err error
		ctx := context.Background()
		switch call.verb {
		case "take":
			a.verdict, err = c.Take(ctx, call.asks[0].Key, call.n, call.asks[0].Limits)
		case "peek":
			a.verdict, err = c.Peek(ctx, call.asks[0].Key, call.n, call.asks[0].Limits)
		case "takeall":
			a.verdict, err = c.TakeAll(ctx, call.n, call.asks...)
		case "add":
			err = c.Add(ctx, call.asks[0].Key, call.n)
		case "count":
			a.count, err = c.Count(ctx, call.asks[0].Key, call.window)
		case "refund":
			v := answers[call.n].verdict
			copied := v
			if err = c.Refund(ctx, &v); err == nil {
				err = c.Refund(ctx, &v)
			}
			if err == nil {
				err = c.Refund(ctx, &copied) // a copy gives nothing more
			}
		case "forget":
			err = c.Forget(ctx, call.asks[0].Key)
		default:
			err = fmt.Errorf("no such verb")
		}
		a.states = a.verdict.All()
		answers = append(answers, a)
		if err == nil {
			err = w.hold(i, call, now, a)
		}
		if err != nil {
			return answers, fmt.Errorf("call %d, %d %s: %w", i, call.at, call.verb, err)
		}
	}
	return answers, nil
}

// world is what really happened, as the oracle keeps it.
type world struct {
	judge oracle.Judge
	skew  time.Duration
	logs  map[counter.Key]*keyLog
	taken []hit // by call
}

type keyLog struct {
	all      oracle.Log // every hit that counts
	admitted oracle.Log // those that Take let in
	newest   time.Time
	forgets  []time.Time
}

type hit struct {
	at   time.Time
	n    int64
	keys []counter.Key // nil: nothing to refund
}

func (w *world) log(k counter.Key) *keyLog {
	if w.logs[k] == nil {
		w.logs[k] = &keyLog{}
	}
	return w.logs[k]
}

// hold checks an answer, and writes down what it did.
func (w *world) hold(i int, c call, now time.Time, a answer) error {
	w.taken = append(w.taken, hit{})
	switch c.verb {
	case "take", "peek", "takeall":
		if err := w.verdict(c, now, a); err != nil {
			return err
		}
		if !a.verdict.Allowed || c.verb == "peek" {
			return nil
		}
		for _, ask := range c.asks {
			if slices.Contains(w.taken[i].keys, ask.Key) {
				continue
			}
			w.taken[i].at, w.taken[i].n = now, c.n
			w.taken[i].keys = append(w.taken[i].keys, ask.Key)
			log := w.log(ask.Key)
			log.all.Add(now, c.n)
			log.admitted.Add(now, c.n)
			if log.newest.Before(now) {
				log.newest = now
			}
		}
		for _, ask := range c.asks {
			for _, l := range ask.Limits {
				if worst := w.log(ask.Key).admitted.Count(now.Add(-l.Per), now.Add(l.Per)); worst > l.Max {
					if worst = w.log(ask.Key).windowWith(now, l.Per); worst > l.Max {
						return fmt.Errorf("%d admitted within a window of %s", worst, l)
					}
				}
			}
		}
	case "add":
		log := w.log(c.asks[0].Key)
		log.all.Add(now, c.n)
		if log.newest.Before(now) {
			log.newest = now
		}
	case "count":
		fine, err := w.judge.Ladder.Finest(c.window)
		if err != nil {
			return err
		}
		log := &w.log(c.asks[0].Key).all
		g := w.judge.Ladder.At(fine).Width
		least, most := log.Since(now.Add(-c.window)), log.Since(now.Add(-c.window-w.judge.Slack-g))
		if a.count.High < least || a.count.High > most || a.count.Low > a.count.High || a.count.Low > least {
			return fmt.Errorf("count of %s is %+v, want %d to %d", c.window, a.count, least, most)
		}
		if whole := log.Since(now.Add(-c.window + w.skew + g)); a.count.Low < whole {
			return fmt.Errorf("count of %s is %+v, but %d lie wholly inside", c.window, a.count, whole)
		}
	case "refund":
		h := w.taken[c.n]
		w.taken[c.n].keys = nil
		for _, k := range h.keys {
			log := w.log(k)
			if w.forgotten(log, h.at, now) {
				continue
			}
			log.all.Remove(h.at, h.n)
			log.admitted.Remove(h.at, h.n)
		}
	case "forget":
		log := w.log(c.asks[0].Key)
		log.all.Reset()
		log.admitted.Reset()
		log.forgets = append(log.forgets, now)
	}
	return nil
}

// forgotten tells whether a hit is taken for one from before a Forget: by the
// finest bucket that is kept so long, so that what was hit just after may be
// too. Then too much is counted, never too little. Beyond all that is kept there
// is nothing to refund.
func (w *world) forgotten(log *keyLog, at, now time.Time) bool {
	for _, t := range w.judge.Ladder.Tiers() {
		if now.Sub(at) > t.Keep {
			continue
		}
		return slices.ContainsFunc(log.forgets, func(f time.Time) bool {
			return tiers.Index(f.UnixNano(), t.Width) >= tiers.Index(at.Add(-w.judge.Slack).UnixNano(), t.Width)
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

// verdict holds an answer to what the log says.
func (w *world) verdict(c call, now time.Time, a answer) error {
	want, never := true, false
	for _, ask := range c.asks {
		ok, err := w.judge.Allowed(&w.log(ask.Key).all, now, c.n, ask.Limits)
		if err != nil {
			return err
		}
		want = want && ok
		for _, l := range ask.Limits {
			never = never || c.n > l.Max
		}
	}
	v := a.verdict
	if v.Allowed != want {
		return fmt.Errorf("allowed: %v, the log says %v", v.Allowed, want)
	}
	if v.Allowed != (v.RetryAfter == 0) || never != (v.RetryAfter == counter.Never) {
		return fmt.Errorf("allowed: %v, never: %v, but retry after %s", v.Allowed, never, v.RetryAfter)
	}
	if v.Allowed || never {
		return nil
	}
	// A lone caller who comes back then is let in, whoever's clock he has; at
	// the same clock, one who comes before is not.
	back := func(at time.Time) bool {
		for _, ask := range c.asks {
			if ok, _ := w.judge.Allowed(&w.log(ask.Key).all, at, c.n, ask.Limits); !ok {
				return false
			}
		}
		return true
	}
	if at := now.Add(v.RetryAfter - w.skew); !back(at) || back(at.Add(-1)) {
		return fmt.Errorf("retry after %s: then %v, a moment earlier %v", v.RetryAfter, back(at), back(at.Add(-1)))
	}
	return nil
}

func loadScript(file string) (script, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return script{}, err
	}
	return parseScript(string(text))
}
