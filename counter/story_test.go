package counter_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// story is a test in lines, each with a call of a Counter and its answer, on a clock that
// only "later" moves:
//
//	add 2 user
//	later 10m
//	let asks 1 user 5/h,9/d; 2 tenant 9/d soft
//	v: take asks -> took *user 5/h 2, user 9/d 6, tenant 9/d 7
//	both+next.count user 1m 1h -> 1 3 1 3
//	settle v 5 -> took *user 5/h 0, user 9/d 4, tenant 9/d 7
//	refund v -> error settled
//
// take, peek and charge are TakeAll, PeekAll and ChargeAll of asks with n, feature, limits
// and options; "next." names the Counter. The answer is took, or over, if hits were
// counted, otherwise yes or no; then the state of each limit, with its Remaining and
// RetryAfter, and a star where it binds. Of an error a part is enough.
type story struct {
	clock    *clock
	counters map[string]*counter.Counter
	verdicts map[string]counter.Verdict
	lets     map[string][]string
}

// keyOf is the key of a feature in a story.
func keyOf(feature string) counter.Key { return counter.Key{Event: "e", Feature: feature} }

func (s *story) play(t *testing.T, lines string) {
	s.verdicts, s.lets = map[string]counter.Verdict{}, map[string][]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		call, want, judged := strings.Cut(strings.TrimSpace(line), " -> ")
		if call == "" || call[0] == '#' {
			continue
		}
		got, err := s.call(strings.Fields(call))
		switch text, fails := strings.CutPrefix(want, "error "); {
		case fails:
			require.ErrorContains(t, err, text, line)
		case judged:
			require.NoError(t, err, line)
			if want == "no" { // whatever the states
				got, _, _ = strings.Cut(got, " ")
			}
			require.Equal(t, want, got, line)
		default:
			require.NoError(t, err, line)
		}
	}
}

// call makes the call of a line, and returns the text of its answer.
func (s *story) call(words []string) (answer string, err error) {
	name, named := strings.CutSuffix(words[0], ":")
	if named {
		words = words[1:]
	}
	on, verb, found := strings.Cut(words[0], ".")
	if !found {
		on, verb = "", words[0]
	}
	c, words := s.counters[on], words[1:]
	number := func(i int) int64 { return must(strconv.ParseInt(words[i], 10, 64)) }
	duration := func(i int) time.Duration { return must(time.ParseDuration(words[i])) }
	var v counter.Verdict
	switch verb {
	case "let":
		s.lets[words[0]] = words[1:]
		return "", nil
	case "later":
		s.clock.forward(duration(0))
		return "", nil
	case "add":
		return "", c.Add(ctx, keyOf(words[1]), number(0))
	case "addat":
		return "", c.AddAt(ctx, keyOf(words[1]), number(0), s.clock.now().Add(-duration(2)))
	case "refundat":
		return "", c.RefundAt(ctx, keyOf(words[1]), number(0), s.clock.now().Add(-duration(2)))
	case "refund":
		v = s.verdicts[words[0]]
		return "", c.Refund(ctx, &v)
	case "settle": // of a copy
		v = s.verdicts[words[0]]
		err = c.Settle(ctx, &v, number(1))
	case "forget":
		return "", c.Forget(ctx, keyOf(words[0]))
	case "count":
		var counts []string
		for name := range strings.SplitSeq(on, "+") {
			for i := 1; i < len(words) && err == nil; i++ {
				var n counter.Count
				n, err = s.counters[name].Count(ctx, keyOf(words[0]), duration(i))
				counts = append(counts, strconv.FormatInt(n.High, 10))
			}
		}
		return strings.Join(counts, " "), err
	case "take":
		v, err = c.TakeAll(ctx, s.asks(words)...)
	case "peek":
		v, err = c.PeekAll(ctx, s.asks(words)...)
	case "charge":
		v, err = c.ChargeAll(ctx, s.asks(words)...)
	default:
		panic(verb)
	}
	s.verdicts[name] = v
	return told(v), err
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// asks reads asks, which semicolons part, or the name of some.
func (s *story) asks(words []string) (asks []counter.Ask) {
	if len(words) == 1 {
		words = s.lets[words[0]]
	}
	for part := range strings.SplitSeq(strings.Join(words, " "), ";") {
		f := strings.Fields(part)
		a := counter.Ask{Key: keyOf(f[1]), N: must(strconv.ParseInt(f[0], 10, 64)), Limits: limits(f[2])}
		for _, option := range f[3:] {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "soft":
				a.Soft = true
			case "shared":
				a.Soft, a.Shared = true, true
			case "charged":
				a.Charge = true
			case "on":
				a.On = s.counters[value]
			case "held":
				for n := range strings.SplitSeq(value, ",") {
					a.Held = append(a.Held, must(strconv.ParseInt(n, 10, 64)))
				}
			default:
				panic(option)
			}
		}
		asks = append(asks, a)
	}
	return asks
}

// told is a Verdict as a story has it.
func told(v counter.Verdict) string {
	words := map[[2]bool]string{{true, true}: "took", {true, false}: "yes", {false, true}: "over", {}: "no"}
	var states []string
	for _, s := range v.All() {
		text := fmt.Sprintf("%s %s %d", s.Key.Feature, s.Limit, s.Remaining)
		if s.Key == v.Key && s.Limit == v.Limit && !s.Soft {
			text = "*" + text
		}
		if s.RetryAfter == counter.Never {
			text += " never"
		} else if s.RetryAfter > 0 {
			text += " in " + s.RetryAfter.String()
		}
		states = append(states, text)
	}
	return words[[2]bool{v.Allowed, !v.At().IsZero()}] + " " + strings.Join(states, ", ")
}

// onAll plays lines on every path, and on a store with an atomic step for each key alone.
// Its Counters are "short" and "fives", of other ladders, and "other", of another New.
func onAll(t *testing.T, lines string) {
	t.Helper()
	play := func(name string, store func() backend.Store) {
		t.Run(name, func(t *testing.T) {
			clock := newClock(noon)
			c := newCounter(t, store(), clock.config())
			s := story{clock: clock, counters: map[string]*counter.Counter{
				"": c, "short": must(c.With(tiers.For(time.Minute), nil)), "fives": must(c.With(must(tiers.Parse("5s:1m")), nil)),
				"other": newCounter(t, store(), clock.config()),
			}}
			s.play(t, lines)
		})
	}
	for _, path := range paths {
		play(path.name, path.store)
	}
	play("steps", func() backend.Store { return apart{memory.New(memory.Config{})} })
}

// apart is a store with an atomic step for each key by itself, as a Redis Cluster.
type apart struct{ backend.Atomic }

func (apart) Together(keys []backend.TakeKey) bool { return len(keys) < 2 }
