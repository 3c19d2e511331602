package classic_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/counter"
)

var api = counter.Key{Event: "api", Feature: "user:7"}

// must ends an example after an error.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// day is a store in memory, and the hand of its clock: half past ten.
func day() (*classic.Store, *time.Time) {
	now := time.Date(2026, 3, 2, 10, 30, 0, 0, time.UTC)
	return must(classic.Memory(classic.Config{Now: func() time.Time { return now }})), &now
}

// attempt takes n hits of a key.
func attempt(l classic.Limiter, n int64) {
	if v := must(l.Take(context.Background(), api, n)); v.Allowed {
		fmt.Println("admitted,", v.Remaining, "left")
	} else {
		fmt.Println("denied, come back in", v.RetryAfter)
	}
}

// A minute before eleven and a minute after are two windows.
func ExampleFixedWindow() {
	store, now := day()
	l := must(classic.NewFixedWindow(counter.Limit{Max: 100, Per: time.Hour}, store))
	*now = now.Add(29 * time.Minute)
	attempt(l, 100)
	attempt(l, 1)
	*now = now.Add(time.Minute)
	attempt(l, 100)
	// Output:
	// admitted, 0 left
	// denied, come back in 1m0s
	// admitted, 0 left
}

// A day of windows, and three counters.
func ExampleFixedSlots() {
	store, now := day()
	l := must(classic.NewFixedSlots(counter.Limit{Max: 100, Per: time.Minute}, store))
	for range 24 * 60 {
		*now = now.Add(time.Minute)
		if v := must(l.Take(context.Background(), api, 100)); !v.Allowed {
			log.Fatal(v)
		}
	}
	for _, name := range l.Keys(api) {
		fmt.Println(name)
	}
	// Output:
	// cl:fixed-slots:1m{api:user:7}0
	// cl:fixed-slots:1m{api:user:7}1
	// cl:fixed-slots:1m{api:user:7}2
}

// The window begins with the first hit, at half past ten.
func ExampleFirstHitWindow() {
	store, now := day()
	l := must(classic.NewFirstHitWindow(counter.Limit{Max: 100, Per: time.Hour}, store))
	attempt(l, 1)
	*now = now.Add(59 * time.Minute)
	attempt(l, 99)
	attempt(l, 1)
	*now = now.Add(61 * time.Second)
	attempt(l, 100)
	// Output:
	// admitted, 99 left
	// admitted, 0 left
	// denied, come back in 1m0.000001s
	// admitted, 0 left
}

// Each hit leaves the window when an hour old.
func ExampleSlidingLog() {
	store, now := day()
	l := must(classic.NewSlidingLog(counter.Limit{Max: 3, Per: time.Hour}, store))
	for range 4 {
		*now = now.Add(10 * time.Minute)
		attempt(l, 1)
	}
	*now = now.Add(31 * time.Minute)
	attempt(l, 1)
	// Output:
	// admitted, 2 left
	// admitted, 1 left
	// admitted, 0 left
	// denied, come back in 30m0.000001s
	// admitted, 0 left
}

// A quarter past eleven three quarters of the hits since ten count.
func ExampleSlidingCounter() {
	store, now := day()
	l := must(classic.NewSlidingCounter(counter.Limit{Max: 100, Per: time.Hour}, store))
	attempt(l, 80)
	*now = now.Add(45 * time.Minute)
	attempt(l, 40)
	attempt(l, 1)
	// Output:
	// admitted, 20 left
	// admitted, 0 left
	// denied, come back in 45s
}

// A quarter of an hour after the last hit a quarter of the count is gone.
func ExampleSlidingDecay() {
	store, now := day()
	l := must(classic.NewSlidingDecay(counter.Limit{Max: 100, Per: time.Hour}, store))
	attempt(l, 80)
	*now = now.Add(15 * time.Minute)
	attempt(l, 40)
	attempt(l, 1)
	// Output:
	// admitted, 20 left
	// admitted, 0 left
	// denied, come back in 36s
}

// Ten at once, and a hit a second.
func ExampleTokenBucket() {
	store, now := day()
	l := must(classic.NewTokenBucket(counter.Limit{Max: 60, Per: time.Minute}, 10, store))
	attempt(l, 10)
	*now = now.Add(2500 * time.Millisecond)
	attempt(l, 2)
	attempt(l, 1)
	// Output:
	// admitted, 0 left
	// admitted, 0 left
	// denied, come back in 500ms
}

// The same in a single value.
func ExampleGCRA() {
	store, now := day()
	l := must(classic.NewGCRA(counter.Limit{Max: 60, Per: time.Minute}, 10, store))
	attempt(l, 10)
	*now = now.Add(2500 * time.Millisecond)
	attempt(l, 2)
	attempt(l, 1)
	// Output:
	// admitted, 0 left
	// admitted, 0 left
	// denied, come back in 500ms
}

// The same, upside down.
func ExampleLeakyMeter() {
	store, now := day()
	l := must(classic.NewLeakyMeter(counter.Limit{Max: 60, Per: time.Minute}, 10, store))
	attempt(l, 10)
	*now = now.Add(2500 * time.Millisecond)
	attempt(l, 2)
	attempt(l, 1)
	// Output:
	// admitted, 0 left
	// admitted, 0 left
	// denied, come back in 500ms
}

// Ten a minute are one in six seconds: who asks each five seconds loses the five
// with every request.
func ExampleRequestDecay() {
	store, now := day()
	l := must(classic.NewRequestDecay(counter.Limit{Max: 10, Per: time.Minute}, store))
	attempt(l, 10)
	for range 3 {
		*now = now.Add(5 * time.Second)
		attempt(l, 1)
	}
	// Output:
	// admitted, 0 left
	// denied, come back in 6s
	// denied, come back in 6s
	// denied, come back in 6s
}

// Two tokens at once, and then one in half a second for whoever waits.
func ExampleTokenShaper() {
	store, _ := day()
	l := must(classic.NewTokenShaper(counter.Limit{Max: 2, Per: time.Second}, 2, 2, store))
	for range 5 {
		v, delay, err := l.Reserve(context.Background(), api, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(v.Allowed, delay)
	}
	// Output:
	// true 0s
	// true 0s
	// true 500ms
	// true 1s
	// false 0s
}

// A caller who comes just after a departure is not admitted, unless he waits.
func ExampleLeakyQueue() {
	store, now := day()
	l := must(classic.NewLeakyQueue(counter.Limit{Max: 60, Per: time.Minute}, 10, store))
	attempt(l, 1)
	attempt(l, 1)
	*now = now.Add(time.Second)
	attempt(l, 1)
	// Output:
	// admitted, 0 left
	// denied, come back in 1s
	// admitted, 0 left
}

// Five at once: one leaves, two wait for their turn, and two find no slot.
func ExampleLeakyQueue_Wait() {
	store := must(classic.Memory(classic.Config{}))
	l := must(classic.NewLeakyQueue(counter.Limit{Max: 2, Per: time.Second}, 2, store))
	began := time.Now()
	var left sync.Map
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() { left.Store(i, must(l.Wait(context.Background(), api, 1)).Allowed) })
	}
	wg.Wait()
	admitted := 0
	for _, allowed := range left.Range {
		if allowed.(bool) {
			admitted++
		}
	}
	fmt.Println(admitted, time.Since(began) >= time.Second)
	// Output:
	// 3 true
}

// A day ago it was just after half past eleven at night: what was then is dropped a
// second early, and with it Max too many get in.
func ExampleTextbookTiers() {
	store, now := day()
	l := must(classic.NewTextbookTiers(counter.Limit{Max: 100, Per: 24 * time.Hour}, store))
	*now = time.Date(2026, 3, 2, 23, 30, 33, 999_000_000, time.UTC)
	attempt(l, 100)
	*now = now.Add(24*time.Hour - 999*time.Millisecond)
	attempt(l, 100)
	fmt.Println(l.Cost().Reads, "reads")
	// Output:
	// admitted, 0 left
	// admitted, 0 left
	// 284 reads
}
