package backendtest

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
)

// Pause holds a store on a network to the rule that a hit whose caller was told
// of a failure does not stay. stop makes the server stand still and cont lets it
// go on, as SIGSTOP and SIGCONT do: connections stay, and what was sent meanwhile
// is executed later. open makes a store on that server, a new one for each call.
//
// The server stands still for 0.35 s and for 2 s, and for as long as the
// environment variable BACKENDTEST_PAUSE says (10s) after that. Each time twelve
// calls on a fresh key under 10/h are in flight: Takes of a Counter with little
// patience, Takes under a context with little time, and Adds. All of them fail
// by their deadline. When the server goes on, all ten places are free again: within a
// second, and much later on a busy machine.
func Pause(t *testing.T, stop, cont func(), open func(t testing.TB) backend.Store) {
	t.Helper()
	pauses := []time.Duration{350 * time.Millisecond, 2 * time.Second}
	if given := os.Getenv("BACKENDTEST_PAUSE"); given != "" {
		longer, err := time.ParseDuration(given)
		if err != nil {
			t.Fatalf("BACKENDTEST_PAUSE: %v", err)
		}
		pauses = append(pauses, longer)
	}
	for _, pause := range pauses {
		t.Run(fmt.Sprint(pause), func(t *testing.T) {
			var all []*pausedKey
			for _, way := range impatience {
				if err := caught(func() { all = append(all, newPausedKey(open(t), way)) }); err != nil {
					t.Fatal(err)
				}
			}
			limit := enough / 2 // a call that waits for the server never returns
			if long.Asked() {
				limit = max(pause/2, time.Second)
			}
			stop()
			began := time.Now()
			err := caught(func() { together(len(all), func(i int) { all[i].fail(limit) }) })
			time.Sleep(pause - time.Since(began)) // stands still at least so long
			cont()
			if err != nil {
				t.Fatal(err)
			}
			began = time.Now()
			if err := caught(func() { together(len(all), func(i int) { all[i].comeBack() }) }); err != nil {
				t.Error(err)
			}
			t.Logf("all places were back after %v", time.Since(began).Round(time.Millisecond))
		})
	}
}

const (
	pauseCallers = 12
	pauseTime    = 50 * time.Millisecond // that a call has
	pausePlaces  = 10
)

var pauseLimits = counter.Limits{{Max: pausePlaces, Per: time.Hour}}

// way is a way to have little time.
type way struct {
	name     string
	patience time.Duration // of the Counter
	ctx      time.Duration // of the context
	add      bool
}

var impatience = []way{
	{name: "a Take with little patience", patience: pauseTime},
	{name: "a Take under a context", patience: enough, ctx: pauseTime},
	{name: "an Add with little patience", patience: pauseTime, add: true},
}

// pausedKey is a key that is called while the server stands still.
type pausedKey struct {
	way
	hasty, patient *counter.Counter
	key            counter.Key
	counted        atomic.Int64 // calls that did not fail after all
}

func newPausedKey(store backend.Store, w way) *pausedKey {
	k := &pausedKey{way: w, key: counter.Key{Event: "pause", Feature: "fresh"}}
	prefix := freshPrefix()
	k.hasty = value(counter.New(store, counter.Config{Prefix: prefix, Patience: w.patience}))
	k.patient = value(counter.New(store, counter.Config{Prefix: prefix, Patience: enough}))
	// Connections are there, and the server knows what it is asked.
	together(pauseCallers, func(i int) {
		other := counter.Key{Event: "pause", Feature: fmt.Sprint("before:", i)}
		must(k.patient.Add(context.Background(), other, 1))
		value(k.patient.Take(context.Background(), other, 1, pauseLimits))
	})
	return k
}

// fail calls while the server stands still, and wants each call to fail within a
// limit of time.
func (k *pausedKey) fail(limit time.Duration) {
	together(pauseCallers, func(int) {
		ctx := context.Background()
		if k.ctx > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, k.ctx)
			defer cancel()
		}
		within(limit, k.name+" while the server stood still", func() {
			if k.add {
				if k.hasty.Add(ctx, k.key, 1) == nil { // the server was still on its way to a standstill
					k.counted.Add(1)
				}
			} else if v, err := k.hasty.Take(ctx, k.key, 1, pauseLimits); err == nil && v.Allowed {
				k.counted.Add(1)
			}
		})
	})
}

// comeBack wants all places back but the places of the successful calls.
func (k *pausedKey) comeBack() {
	ctx, end, counted := context.Background(), time.Now().Add(enough), k.counted.Load()
	for {
		n, err := k.patient.Count(ctx, k.key, time.Hour)
		if mustf(err, "%s, after the pause", k.name); n.High == counted {
			break
		}
		if time.Now().After(end) {
			failf("%s: %d of %d calls failed while the server stood still, and %v later it counts %d hits, want %d",
				k.name, pauseCallers-counted, pauseCallers, enough, n.High, counted)
		}
		time.Sleep(5 * time.Millisecond)
	}
	for i := counted; i <= pausePlaces; {
		v, err := k.patient.Take(ctx, k.key, 1, pauseLimits)
		switch mustf(err, "%s, after the pause", k.name); {
		case v.Allowed == (i < pausePlaces):
			i++
		case v.Allowed || time.Now().After(end):
			failf("%s, after the pause: hit %d of %d: allowed %v", k.name, i+1, pausePlaces, v.Allowed)
		default: // the server counts a late hit after the Count, and the hit is taken back
			time.Sleep(5 * time.Millisecond)
		}
	}
}
