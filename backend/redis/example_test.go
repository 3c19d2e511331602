package redis_test

import (
	"context"
	"fmt"
	"log"

	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// startRedis starts a server of the example's own.
func startRedis() (url string, stop func()) {
	stage := &servertest.Stage{OnFailure: func(err error) { panic(err) }}
	return "redis://" + servertest.Redis(stage) + "/0", stage.End
}

// Two sign-ups a minute for each address, counted for all processes that use the
// server.
func ExampleOpen() {
	url, stop := startRedis() // "redis://127.0.0.1:6379/0"
	defer stop()
	store, err := redis.Open(url, redis.Config{})
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
