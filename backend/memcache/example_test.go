package memcache_test

import (
	"context"
	"fmt"
	"log"

	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/counter"
)

// Sign-ups counted on two memcached servers, for all processes that name the
// same ones.
func ExampleNew() {
	store, err := memcache.New(memcache.Config{}, "10.0.0.1:11211", "10.0.0.2:11211")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	v, err := c.Take(context.Background(), counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}, 1, counter.MustLimits("2/m, 100/d"))
	if err != nil {
		log.Fatal(err) // errors.Is(err, counter.ErrStore)
	}
	fmt.Println(v.Allowed, v.RetryAfter)
}
