package counter_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// Three sign-ups from one address; two a minute and a hundred a day are
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

// A sign-up counts for the address and for its network: both or neither.
func ExampleCounter_TakeAll() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, address := range []string{"203.0.113.9", "203.0.113.10", "203.0.113.9"} {
		v, err := c.TakeAll(context.Background(),
			counter.Ask{Key: counter.Key{Event: "signup", Feature: "ip:" + address}, N: 1, Limits: counter.MustLimits("1/d")},
			counter.Ask{Key: counter.Key{Event: "signup", Feature: "net:203.0.113.0/24"}, N: 1, Limits: counter.MustLimits("5/d")})
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

// The most that an answer of a model can cost is taken before, and settled by its cost.
func ExampleCounter_Settle() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, key := context.Background(), counter.Key{Event: "tokens", Feature: "user:7"}
	for _, used := range []int64{300, 1000, 0} {
		v, err := c.Take(ctx, key, 800, counter.MustLimits("1200/h"))
		if err != nil {
			log.Fatal(err)
		}
		if !v.Allowed {
			fmt.Println("denied,", v.Remaining, "left")
			continue
		}
		if err := c.Settle(ctx, &v, used); err != nil {
			log.Fatal(err)
		}
		fmt.Println(v.N(), "used,", v.Remaining, "left")
	}
	// Output:
	// 300 used, 900 left
	// 1000 used, 0 left
	// denied, 0 left
}

// A failed log-in counts, a successful log-in does not.
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

// The number of clicks of a short link, which nothing limits.
func ExampleCounter_Count() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, key := context.Background(), counter.Key{Event: "click", Feature: "link:q7"}
	for range 3 {
		if err := c.Add(ctx, key, 1); err != nil {
			log.Fatal(err)
		}
	}
	hits, err := c.Count(ctx, key, 24*time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("at least", hits.Low, "at most", hits.High)
	// Output:
	// at least 3 at most 3
}

// The clicks of the last minutes, for a chart.
func ExampleCounter_Series() {
	now := time.Date(2026, 3, 2, 11, 58, 30, 0, time.UTC)
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{Now: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	ctx, key := context.Background(), counter.Key{Event: "click", Feature: "link:q7"}
	for _, clicks := range []int64{4, 1, 7} {
		now = now.Add(time.Minute)
		if err := c.Add(ctx, key, clicks); err != nil {
			log.Fatal(err)
		}
	}
	points, err := c.Series(ctx, key, now.Add(-3*time.Minute), now, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range points {
		fmt.Println(p.Start.UTC().Format("15:04"), p.Count)
	}
	// Output:
	// 11:58 0
	// 11:59 4
	// 12:00 1
	// 12:01 7
}

// How many hits of a quota are used this month so far, and when it ends. With a Max of
// MaxCount the limit itself does not matter, also where a Charge has gone beyond it.
func ExampleCounter_Peek_period() {
	quota := counter.MustLimits("1000 per month in Europe/Berlin")
	now := time.Date(2026, 10, 17, 9, 30, 0, 0, time.UTC)
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{Ladder: quota.Ladder(), Now: func() time.Time { return now }})
	if err != nil {
		log.Fatal(err)
	}
	customer := counter.Key{Event: "call", Feature: "customer:7"}
	if _, err := c.Charge(context.Background(), customer, 1200, quota); err != nil {
		log.Fatal(err)
	}
	month := counter.Limit{Max: counter.MaxCount, Period: quota[0].Period}
	v, err := c.Peek(context.Background(), customer, 0, counter.Limits{month})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(counter.MaxCount-v.Remaining, "of", quota, "until", now.Add(v.ResetAfter))
	// Output:
	// 1200 of 1000 per month in Europe/Berlin until 2026-10-31 23:00:00 +0000 UTC
}

// Of five mails an hour two are sent. A third would leave two more, and looking costs
// nothing.
func ExampleCounter_Peek() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, key, limits := context.Background(), counter.Key{Event: "mail", Feature: "user:7"}, counter.MustLimits("5/h")
	if _, err := c.Take(ctx, key, 2, limits); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		v, err := c.Peek(ctx, key, 1, limits)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(v.Allowed, v.Remaining)
	}
	// Output:
	// true 2
	// true 2
}

// Support lets a customer in again who has mistyped a password too often.
func ExampleCounter_Forget() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, key, limits := context.Background(), counter.Key{Event: "login", Feature: "user:7"}, counter.MustLimits("1/d")
	for range 2 {
		v, err := c.Take(ctx, key, 1, limits)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(v.Allowed)
	}
	if err := c.Forget(ctx, key); err != nil {
		log.Fatal(err)
	}
	v, err := c.Take(ctx, key, 1, limits)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Allowed)
	// Output:
	// true
	// false
	// true
}
