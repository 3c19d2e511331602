package backend_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// Every round trip to the store is timed, by its kind.
func ExampleWrap() {
	var mu sync.Mutex
	trips, spent := map[backend.Kind]int{}, map[backend.Kind]time.Duration{}
	timed := backend.Wrap(memory.New(memory.Config{}), func(ctx context.Context, trip *backend.Trip, do func(context.Context) error) error {
		began := time.Now()
		err := do(ctx)
		mu.Lock()
		defer mu.Unlock()
		trips[trip.Kind]++
		spent[trip.Kind] += time.Since(began)
		return err
	})
	c, err := counter.New(timed, counter.Config{})
	if err != nil {
		panic(err)
	}
	ctx, key := context.Background(), counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	for range 3 {
		if _, err := c.Take(ctx, key, 1, counter.MustLimits("2/m")); err != nil {
			panic(err)
		}
	}
	if _, err := c.Count(ctx, key, time.Minute); err != nil {
		panic(err)
	}
	fmt.Println(trips[backend.KindTake], "takes,", trips[backend.KindRead], "reading, in less than a second:", spent[backend.KindTake] < time.Second)
	// Output: 3 takes, 1 reading, in less than a second: true
}
