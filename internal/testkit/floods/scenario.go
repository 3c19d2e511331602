package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// scenario is a kind of flood: some services, their rule, the requests and the
// standstill of the store.
type scenario struct {
	Name, Means string // for the page
	services    int
	limits      counter.Limits
	within      time.Duration // of a decision; zero: the limiter's default
	users       int
	usedUp      bool          // the limits of all users are used up before, and each service has denied
	stop        time.Duration // the store stands still for so long; zero: never
	again       int           // and so often again, each time after as long a time without a standstill
	lead        time.Duration // requests come for up to so long before the standstill, by chance
	tail        time.Duration // and for so long after it
	connections int
	requests    int           // at least
	pause       time.Duration // of a connection between two requests, in the mean
	carry       time.Duration // after the flood the store has all hits within so long
	Long        bool          // there is a single run, side by side with those of other long scenarios
}

const (
	// tight is a deadline that a busy machine does not keep.
	tight = 10 * time.Millisecond

	standstill = 2500 * time.Millisecond

	// carry is the time in which a store gets all hits that were let through, on a
	// slow machine too.
	carry = 30 * time.Second
)

var (
	ten = counter.MustLimits("10/h")

	// several binds in the windows of the standstill, and over all of it.
	several = counter.MustLimits("6/10s, 20/h")
)

// flooded is a scenario of very many requests for a single user.
func flooded(s scenario) scenario {
	s.limits, s.within, s.carry, s.users, s.connections, s.requests = ten, tight, carry, 1, 1500, 20_000
	if s.stop > 0 {
		s.tail = 500 * time.Millisecond
	}
	return s
}

// stopped is a scenario of a long standstill under the requests of many users.
func stopped(s scenario) scenario {
	s.limits, s.carry, s.users, s.connections, s.requests, s.Long = several, carry, 60, 120, 1, true
	s.pause, s.lead, s.tail = time.Second, 5*time.Second, 5*time.Second
	return s
}

// scenarios are all scenarios, in the order of the page.
var scenarios = []scenario{
	flooded(scenario{Name: "overload, used up", services: 1, usedUp: true,
		Means: "the key is used up before the flood"}),
	flooded(scenario{Name: "overload, fresh", services: 1,
		Means: "the flood itself uses the key up"}),
	flooded(scenario{Name: "overload, fresh, three services", services: 3,
		Means: "the same, over three processes"}),
	flooded(scenario{Name: "stopped, used up", services: 1, usedUp: true, stop: standstill,
		Means: "the store stands still for 2.5 s from the first request on"}),
	flooded(scenario{Name: "stopped, fresh", services: 1, stop: standstill, lead: 100 * time.Millisecond,
		Means: "the store stands still for 2.5 s, from an instant in the first 0.1 s on"}),
	flooded(scenario{Name: "stopped, fresh, three services", services: 3, stop: standstill, lead: 100 * time.Millisecond,
		Means: "the same, over three processes"}),
	stopped(scenario{Name: "stopped for 30 s", services: 1, stop: 30 * time.Second}),
	stopped(scenario{Name: "stopped for a minute", services: 1, stop: time.Minute}),
	stopped(scenario{Name: "stopped for a minute, three services", services: 3, stop: time.Minute}),
	stopped(scenario{Name: "stopped 20 times for 1.5 s", services: 1, stop: 1500 * time.Millisecond, again: 19}),
}

// longest is the longest window, and its Max.
func (s *scenario) longest() counter.Limit {
	return slices.MaxFunc(s.limits, func(a, b counter.Limit) int { return cmp.Compare(a.Per, b.Per) })
}
