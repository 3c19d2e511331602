package memcache_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/bench/internal/measure"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// list returns the contestants.
func list() string {
	var text strings.Builder
	for _, kind := range kinds[:5] {
		fmt.Fprintf(&text, "- %s, %d: %s.\n", kind.name, kind.limits, kind.how)
	}
	return strings.TrimSpace(text.String())
}

// racer is a contestant at work.
type racer struct {
	*contestant
	meter
	now  time.Time
	hits map[string]int64 // on the last day of its clock
}

func (r *racer) take(b *bench, key string) {
	b.now = r.now
	if r.hits[key] == 0 && r.ready != nil {
		require.NoError(b, r.ready(key))
	}
	if err := r.hit(key); err != nil {
		require.NoError(b, err)
	}
	r.hits[key]++
}

// check asks for the hits of every key.
func (r *racer) check(b *bench, about ...any) {
	b.now = r.now
	for key, want := range r.hits {
		used, err := r.used(key)
		require.NoError(b, err)
		require.Equal(b, want, used, about...)
	}
}

func TestOnMemcached(t *testing.T) {
	rounds, calls := measure.Pick(2, 3, 9), measure.Pick(30, 300, 1_000)
	b := newBench(t)
	s := measure.Open(t, "On memcached: wall time and the server's time")
	s.Say("%d rounds of %s calls, one caller, loopback; us for one call, the median of the rounds and their spread. \"To incr\" is the median over the rounds of the ratio of wall time to a plain increment. "+
		"\"CPU\" is the server's, all threads; \"additions\" and \"items read\" are its own count of what one call adds, creates and takes back, and of the items that it asks for. Limits are shaped as 100/d or as 10/m, 50/h, 100/d. "+
		"\"Admits\": of a limit of N in its worst true window, by its construction. At the end each contestant is asked how many hits every key has.", rounds, measure.Count(int64(calls)))
	s.Say("%s", list())
	for _, p := range []struct {
		name, note string
		keys       int // 0: each is hit once
		past       int // hits that a key has already
		step       time.Duration
		allow      bool
	}{
		{"Fresh keys", "every key is hit once", 0, 1, 0, true},
		{"Hot", "one key, in the same second", 1, 1, 0, true},
		{"Steady", "100 keys, each hit in a second of its own", 100, 1, time.Second, true},
		{"Refused", "100 keys, whose longest limit is used up", 100, 10, 10 * time.Millisecond, false},
	} {
		names := measure.Names(t, max(p.keys, 1+rounds*calls)) // the first is hit before
		keys := names[:max(1, p.keys)]
		var rs []*racer
		for _, kind := range kinds {
			r := &racer{contestant: kind.make(t, b.setting(roomy(kind.limits, 2*rounds*calls))), now: b.now, hits: map[string]int64{}}
			for range p.past {
				for _, key := range keys {
					r.take(b, key)
				}
			}
			if r.ready != nil && p.keys == 0 {
				for _, key := range names[1:] { // else the call would need more than an increment
					require.NoError(t, r.ready(key))
				}
			}
			rs = append(rs, r)
		}
		measure.Turns(rounds, len(rs), func(i, round int) {
			r := rs[i]
			ready := r.ready
			r.ready = nil
			r.measure(b, calls, func() {
				for call := range calls {
					switch {
					case p.keys == 0:
						r.take(b, names[1+round*calls+call])
					case p.allow || r.refused == nil:
						r.take(b, keys[call%p.keys])
					default:
						b.now = r.now
						if err := r.refused(keys[call%p.keys]); !errors.Is(err, errRefused) {
							t.Fatalf("%s, %s: want a refusal, got %v", p.name, kinds[i].name, err)
						}
					}
					if call%len(keys) == len(keys)-1 {
						r.now = r.now.Add(p.step)
					}
				}
			})
			r.ready = ready
		})
		table := measure.Table{Head: []string{p.note, "wall, us", "to incr", "CPU, us", "additions", "items read", "admits"}}
		for i, r := range rs {
			if p.allow || kinds[i].name == "abacus" { // the other contestants count refused calls
				r.check(b, "%s, %s, %d", p.name, kinds[i].name, kinds[i].limits)
			}
			table.Row(fmt.Sprintf("%s, %d", kinds[i].name, kinds[i].limits), r.wall.Spread(), measure.Num(r.wall.To(rs[0].wall).Median()),
				measure.Num(r.server.Median()), measure.Num(r.additions.Median()), measure.Num(r.items.Median()), kinds[i].admits)
		}
		s.Table(p.name, table)
	}
}

// delay is the delay of the link, each way.
const delay = 2 * time.Millisecond

func TestMemcachedOnALink(t *testing.T) {
	rounds := measure.Pick(3, 30, 100)
	s := measure.Open(t, "On memcached: a link of 2 ms each way")
	s.Say("A proxy delays all bytes by 2 ms in each direction. %d rounds of one call, one caller, ms. Fresh: a new key each time. Known: the same key, each time in another second, as a user who comes again. "+
		"\"To incr\" is the median over the rounds of the ratio to a plain increment in the same round. Trips are counted by the proxy.", rounds)
	b := newBench(t)
	proxy := servertest.NewProxy(t, b.addr, delay)
	const tries = 5 // at the count of trips: a machine that stands still sends in two
	keys := measure.Names(t, rounds+1+tries)
	table := measure.Table{Head: []string{"", "limits", "fresh: trips", "ms", "to incr", "known: trips", "ms", "to incr"}}
	var rs []*racer
	ms := map[bool][]measure.Series{true: make([]measure.Series, len(kinds)), false: make([]measure.Series, len(kinds))}
	trips := map[bool][]int{true: make([]int, len(kinds)), false: make([]int, len(kinds))}
	for i, kind := range kinds {
		set := b.setting(roomy(kind.limits, 2*rounds))
		set.addr = proxy.Addr
		r := &racer{contestant: kind.make(t, set), now: b.now, hits: map[string]int64{}}
		for _, key := range keys {
			if r.ready != nil {
				require.NoError(t, r.ready(key))
			}
		}
		r.ready = nil
		r.take(b, keys[rounds]) // connections are made
		for _, fresh := range []bool{true, false} {
			for try := range tries {
				key := keys[rounds]
				if fresh {
					key = keys[rounds+1+try]
				}
				proxy.Reset()
				r.take(b, key)
				if n := proxy.Trips(); try == 0 || n < trips[fresh][i] {
					trips[fresh][i] = n
				}
			}
		}
		rs = append(rs, r)
	}
	measure.Turns(rounds, len(rs), func(i, round int) {
		r := rs[i]
		for _, fresh := range []bool{true, false} {
			key := keys[rounds]
			if fresh {
				key = keys[round]
			}
			began := time.Now()
			r.take(b, key)
			ms[fresh][i] = append(ms[fresh][i], float64(time.Since(began).Microseconds())/1e3)
			r.now = r.now.Add(time.Second)
		}
	})
	for i, r := range rs {
		r.check(b, "%s", kinds[i].name)
		row := []string{kinds[i].name, fmt.Sprint(kinds[i].limits)}
		for _, fresh := range []bool{true, false} {
			count := fmt.Sprint(trips[fresh][i])
			if strings.Contains(kinds[i].name, "side by side") {
				count = "" // three sequences at once are not counted as one
			}
			row = append(row, count, ms[fresh][i].Spread(), measure.Num(ms[fresh][i].To(ms[fresh][0]).Median()))
		}
		table.Row(row...)
		if kinds[i].name == "abacus" {
			require.Equal(t, []int{1, 1}, []int{trips[true][i], trips[false][i]}, "trips of a Take")
		}
	}
	s.Table("", table)
}

func TestWindowsOnMemcached(t *testing.T) {
	rounds, calls := measure.Pick(2, 3, 5), measure.Pick(30, 200, 600)
	past, n := measure.Pick(20, 200, 200), measure.Pick(3, 10, 10)
	s := measure.Open(t, "On memcached: as windows grow")
	s.Say("%d rounds of %s calls on %d keys; us for one call. Each key has %d hits in its window, and goes on so, by a made-up clock. The ladder is the one that fits the window, exact to a second. "+
		"\"Items read\" is how many buckets a Take asks for.", rounds, measure.Count(int64(calls)), n, past)
	b := newBench(t)
	keys := measure.Names(t, n)
	windows := []time.Duration{time.Minute, time.Hour, day, 7 * day, 30 * day}
	names := []string{"1 minute", "1 hour", "1 day", "7 days", "30 days"}
	var rs []*racer
	for _, window := range windows {
		r := &racer{contestant: newAbacus(t, b.setting(counter.Limits{{Max: 1_000_000, Per: window}})), now: b.now, hits: map[string]int64{}}
		for range past * 3 / 2 {
			for _, key := range keys {
				r.take(b, key)
			}
			r.now = r.now.Add(window / time.Duration(past))
		}
		rs = append(rs, r)
	}
	measure.Turns(rounds, len(rs), func(i, _ int) {
		r := rs[i]
		r.measure(b, calls, func() {
			for call := range calls {
				r.take(b, keys[call%n])
				if call%n == n-1 {
					r.now = r.now.Add(windows[i] / time.Duration(past))
				}
			}
		})
	})
	table := measure.Table{Head: []string{"window", "wall, us", "to the first", "CPU, us", "items read"}}
	for i, r := range rs {
		b.now = r.now
		for _, key := range keys {
			used := try.To(r.used(key))(t)
			// The oldest bucket counts whole, and a window is longer by the skew.
			require.InDelta(t, past, used, float64(3+past/5))
		}
		table.Row(names[i], r.wall.Spread(), measure.Num(r.wall.To(rs[0].wall).Median()), measure.Num(r.server.Median()), measure.Num(r.items.Median()))
	}
	s.Table("", table)
	s.Chart()
}
