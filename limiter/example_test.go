package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// Two short links a minute for each user, and a hundred a day.
func Example() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "shorten", Kind: "user", Limits: counter.MustLimits("2/m, 100/d")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		v, err := lim.Allow(context.Background(), "shorten", feature.New("user", "7"))
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

// A sign-up counts for the subscriber and for the mailbox, or for neither. Two
// addresses in one IPv6 network are one subscriber, and capitals make no other
// mailbox.
func ExampleLimiter_Allow() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "signup", Kind: "ip", Limits: counter.MustLimits("2/h")},
		{Event: "signup", Kind: "email", Limits: counter.MustLimits("1/d")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	for _, visitor := range []struct{ addr, mail string }{
		{"2001:db8::1", "ada@example.org"},
		{"198.51.100.7", "Ada@Example.org"},
		{"2001:db8::2", "bob@example.org"},
		{"2001:db8::3", "eve@example.org"},
		{"198.51.100.7", "eve@example.org"},
	} {
		v, err := lim.Allow(context.Background(), "signup", feature.IP(netip.MustParseAddr(visitor.addr)), feature.Email(visitor.mail))
		if err != nil {
			log.Fatal(err)
		}
		if v.Allowed {
			fmt.Println("welcome,", visitor.mail)
		} else {
			fmt.Println("no more by", v.Key.Feature)
		}
	}
	// Output:
	// welcome, ada@example.org
	// no more by email:ada@example.org
	// welcome, bob@example.org
	// no more by ip:2001:db8::/64
	// welcome, eve@example.org
}

// Only failed log-ins count: each is counted before the password is looked at,
// and given back if it was right.
func ExampleLimiter_Refund() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "login", Kind: "user", Limits: counter.MustLimits("2/h")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for _, password := range []string{"wrong", "right", "right", "wrong", "right"} {
		v, err := lim.Allow(ctx, "login", feature.New("user", "ada"))
		if err != nil {
			log.Fatal(err)
		}
		switch {
		case !v.Allowed:
			fmt.Println("come back later")
		case password == "right":
			if err := lim.Refund(ctx, &v); err != nil {
				log.Fatal(err)
			}
			fmt.Println("welcome")
		default:
			fmt.Println("try again")
		}
	}
	// Output:
	// try again
	// welcome
	// welcome
	// try again
	// come back later
}

// Mails wait for their turn, a minute at most. A mail whose turn comes later is not
// waited for, and takes nothing.
func ExampleLimiter_Wait() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "mail", Kind: "email", Limits: counter.MustLimits("2/h")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, mail := range []string{"ada@example.org", "ada@example.org", "Ada@Example.org", "bob@example.org"} {
		v, err := lim.Wait(ctx, "mail", feature.Email(mail))
		switch {
		case err == nil:
			fmt.Println("sent to", mail)
		case errors.Is(err, limiter.ErrWaitTooLong):
			fmt.Println("left for the next run:", mail, v.RetryAfter > 59*time.Minute)
		default:
			log.Fatal(err)
		}
	}
	// Output:
	// sent to ada@example.org
	// sent to ada@example.org
	// left for the next run: Ada@Example.org true
	// sent to bob@example.org
}

// At most four reports of a tenant at once. A report holds a place from its Wait to
// its Refund. A process that dies gives nothing back: its places are free again
// after the window, so Per is the longest time that a report may take.
func ExampleLimiter_Wait_concurrency() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "report", Kind: "tenant", Limits: counter.MustLimits("4/h")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	var running, done, tooMany atomic.Int64
	var reports sync.WaitGroup
	for range 24 {
		reports.Go(func() {
			v, err := lim.Wait(ctx, "report", feature.New("tenant", "acme"))
			if err != nil {
				log.Print(err)
				return
			}
			defer func() {
				if err := lim.Refund(ctx, &v); err != nil {
					log.Print(err) // the place is taken for an hour
				}
			}()
			if running.Add(1) > 4 {
				tooMany.Add(1)
			}
			done.Add(1) // the report
			running.Add(-1)
		})
	}
	reports.Wait()
	fmt.Println(done.Load(), "reports,", tooMany.Load(), "beside four others")
	// Output:
	// 24 reports, 0 beside four others
}

// Decisions, counted by event and outcome: what a metric would be labelled with.
func ExampleConfig_observe() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	metric := map[string]int{} // behind a mutex where several goroutines ask
	lim, err := limiter.New(c, limiter.Config{
		Rules: []limiter.Rule{
			{Event: "mail", Kind: "user", Limits: counter.MustLimits("2/d")},
		},
		Observe: func(d limiter.Decision) { metric[d.Event+" "+d.Outcome.String()]++ },
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"7", "7", "7", "8", ""} {
		if _, err := lim.Allow(context.Background(), "mail", feature.New("user", user)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(metric)
	// Output:
	// map[mail admitted:3 mail missing:1 mail over-limit:1]
}

// Two wrong passwords an hour lock an account, and a good log-in clears the
// failures before it. Support does the same for a customer who asks.
func ExampleLimiter_Forget() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "login", Kind: "email", Limits: counter.MustLimits("2/h")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, ada := context.Background(), feature.Email("ada@example.org")
	for _, password := range []string{"wrong", "right", "wrong", "wrong", "right"} {
		v, err := lim.Allow(ctx, "login", ada)
		if err != nil {
			log.Fatal(err)
		}
		switch {
		case !v.Allowed:
			fmt.Println("come back later")
		case password == "right":
			if err := lim.Forget(ctx, "login", ada); err != nil {
				log.Fatal(err)
			}
			fmt.Println("welcome")
		default:
			fmt.Println("try again")
		}
	}
	if err := lim.Forget(ctx, "login", feature.Email("Ada@Example.org")); err != nil {
		log.Fatal(err)
	}
	v, err := lim.Allow(ctx, "login", ada)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("after a word with support:", v.Allowed)
	// Output:
	// try again
	// welcome
	// try again
	// try again
	// come back later
	// after a word with support: true
}

// A page for support: what a customer has used, however her address is typed.
func ExampleLimiter_Usage() {
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{})
	if err != nil {
		log.Fatal(err)
	}
	lim, err := limiter.New(c, limiter.Config{Rules: []limiter.Rule{
		{Event: "mail", Kind: "email", Limits: counter.MustLimits("2/h, 100/d")},
	}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for range 3 {
		if _, err := lim.Allow(ctx, "mail", feature.Email("ada@example.org")); err != nil {
			log.Fatal(err)
		}
	}
	usage, err := lim.Usage(ctx, "mail", feature.Email("Ada@Example.org"))
	if err != nil {
		log.Fatal(err)
	}
	for _, u := range usage {
		for _, l := range u.Limits {
			fmt.Println(u.Key.Feature, l.Count.High, "of", l.Limit, "left", l.Remaining, "wait", l.RetryAfter > 0)
		}
		fmt.Println(u.Total.High, "in", u.Window, "by", u.Width, "in", len(u.Series), "points")
	}
	// Output:
	// email:ada@example.org 2 of 2/h left 0 wait true
	// email:ada@example.org 2 of 100/d left 98 wait false
	// 2 in 24h0m0s by 1h0m0s in 24 points
}
