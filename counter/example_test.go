package counter_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// Three sign-ups from one address, where two a minute and a hundred a day are
// allowed.
func Example() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	key := counter.Key{Event: "signup", Feature: "ip:203.0.113.9"}
	limits := counter.MustLimits("2/m, 100/d")
	for range 3 {
		v, err := c.Take(context.Background(), key, 1, limits)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(v.Allowed, v.Limit, v.Remaining, v.RetryAfter > 59*time.Second)
	}
	// Output:
	// true 2/m 1 false
	// true 2/m 0 false
	// false 2/m 0 true
}

// A sign-up counts for the address and for the network it comes from: both or
// neither.
func ExampleCounter_TakeAll() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, address := range []string{"203.0.113.9", "203.0.113.10", "203.0.113.9"} {
		v, err := c.TakeAll(context.Background(), 1,
			counter.Ask{Key: counter.Key{Event: "signup", Feature: "ip:" + address}, Limits: counter.MustLimits("1/d")},
			counter.Ask{Key: counter.Key{Event: "signup", Feature: "net:203.0.113.0/24"}, Limits: counter.MustLimits("5/d")})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(v.Allowed, v.Key.Feature, v.All()[1].Remaining)
	}
	// Output:
	// true ip:203.0.113.9 4
	// true ip:203.0.113.10 3
	// false ip:203.0.113.9 3
}

// A failed log-in counts, a good one does not.
func ExampleCounter_Refund() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, key := context.Background(), counter.Key{Event: "login", Feature: "user:7"}
	for _, password := range []string{"wrong", "right", "wrong", "wrong"} {
		v, err := c.Take(ctx, key, 1, counter.MustLimits("2/h"))
		if err != nil {
			log.Fatal(err)
		}
		if v.Allowed && password == "right" {
			if err := c.Refund(ctx, &v); err != nil {
				log.Fatal(err)
			}
			fmt.Println("welcome")
			continue
		}
		fmt.Println("tried:", v.Allowed)
	}
	// Output:
	// tried: true
	// welcome
	// tried: true
	// tried: false
}
