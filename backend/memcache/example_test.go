package memcache_test

import (
	"context"
	"fmt"
	"log"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// startMemcached starts two servers of the example's own.
func startMemcached() (addrs []string, stop func()) {
	stage := &servertest.Stage{OnFailure: func(err error) { panic(err) }}
	return []string{servertest.Memcached(stage), servertest.Memcached(stage)}, stage.End
}

// Two sign-ups a minute for each address, counted on two servers for all processes
// that name the same servers.
func ExampleNew() {
	addrs, stop := startMemcached() // "10.0.0.1:11211", "10.0.0.2:11211"
	defer stop()
	store, err := memcache.New(memcache.Config{}, addrs...)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	for range 3 {
		v, err := c.Take(context.Background(), key, 1, counter.MustLimits("2/m, 100/d"))
		if err != nil {
			log.Fatal(err) // errors.Is(err, counter.ErrStore)
		}
		fmt.Println(v.Allowed, v.Limit, v.Remaining)
	}
	// Output:
	// true 2/m 1
	// true 2/m 0
	// false 2/m 0
}
