// Package backendtest holds stores to the contract of [backend.Store] and
// [backend.Atomic]. An author of a store calls [Run] from a test:
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, func(t testing.TB) backend.Store { return newStore(t) })
//	}
//
// and [Processes] as well if the store is shared over a network. Each case says
// which rule it holds; there is nothing to opt out of. docs/backends.md tells
// what the suite cannot see.
package backendtest

import (
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
)

// Run holds a store to the contract, each case on a store that open makes. The
// stores may share a server: no two cases use the same key, in this run or in any
// other, and nothing else on the server is touched. The server should still be used
// by nobody else, and have room for some 200,000 buckets. open may use t as a test
// does; functions left to t.Cleanup run after the cases.
//
// All cases run on the store as it is. Of a [backend.Atomic] or [backend.Local] the
// cases that then ask in another way run again on [backend.FromDo] of its Do. Run
// the cases with the race detector: it finds a store that uses a request after the return of the call.
//
// The environment variable ABACUS_TESTS=long asks for sixteen times as many random scripts
// and races. A store with a timeout of its own should get a generous timeout, some seconds:
// the suite must pass on a slow machine. A case that fails at random prints a seed,
// to be given in the environment variable BACKENDTEST_SEED.
func Run(t *testing.T, open func(t testing.TB) backend.Store) {
	t.Helper()
	for _, form := range forms(open(t)) {
		t.Run(form.name, func(t *testing.T) {
			start := func(t testing.TB, c check) <-chan error {
				store, done := form.dress(open(t)), make(chan error, 1)
				go func() { done <- c.hold(store, thrift(), nil) }()
				return done
			}
			// Cases that wait for the clock begin first and are waited for last.
			var waiting []<-chan error
			slices.SortStableFunc(form.cases, func(a, b check) int { return int(a.is&waits) - int(b.is&waits) })
			first := slices.IndexFunc(form.cases, func(c check) bool { return c.is&waits != 0 })
			for _, c := range form.cases[first:] {
				waiting = append(waiting, start(t, c))
			}
			for i, c := range form.cases {
				t.Run(c.name, func(t *testing.T) {
					var done <-chan error
					if i >= first {
						done = waiting[i-first]
					} else {
						done = start(t, c)
					}
					if err := <-done; err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// form is a way to look at a store.
type form struct {
	name  string
	cases []check
	dress func(backend.Store) backend.Store
}

// forms are the ways to look at a store like this store. Hiding nothing is no
// second way, and the cases of Do alone that would repeat the same calls are left
// out.
func forms(store backend.Store) []form {
	_, taker := backend.As[backend.Atomic](store)
	_, local := backend.As[backend.Local](store)
	asItIs := form{"as it is", nil, func(s backend.Store) backend.Store { return s }}
	doAlone := form{"Do alone", nil, func(s backend.Store) backend.Store { return backend.FromDo(s.Do) }}
	for _, c := range checks {
		if taker || c.is&takes == 0 {
			asItIs.cases = append(asItIs.cases, c)
		}
		if c.is&instead != 0 {
			doAlone.cases = append(doAlone.cases, c)
		}
	}
	if taker || local {
		return []form{asItIs, doAlone}
	}
	return []form{asItIs}
}

// thrift divides the scripts and races of the cases, by one in the long form.
func thrift() int { return long.Rounds(16, 1) }

// some returns the rows in any order: all in the long form, and fewer in the short form.
func some[T any](s *subject, rows []T) []T {
	rows = slices.Clone(rows)
	s.rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows[:min(len(rows), (6*len(rows)+s.thrift-1)/s.thrift)]
}

// hold runs the case on a store, with its scripts and races divided by thrift; contents
// is nil unless the case looks into the server. The error says what is wrong, and by
// which rule.
func (c check) hold(store backend.Store, thrift int, contents Contents) error {
	seed := rand.Uint64()
	if given, err := strconv.ParseUint(os.Getenv("BACKENDTEST_SEED"), 10, 64); err == nil {
		seed = given
	}
	s := &subject{Store: store, prefix: freshPrefix(), thrift: thrift, seed: seed, rand: rand.New(rand.NewPCG(seed, 0)), contents: contents}
	if c.is&(waits|compares) == 0 {
		s.model = oracle.NewStore()
	}
	s.taker, _ = backend.As[backend.Atomic](store)
	if err := caught(func() { c.run(s) }); err != nil {
		return fmt.Errorf("%w\n\trule: %s\n\tagain with: BACKENDTEST_SEED=%d", err, c.rule, seed)
	}
	return nil
}

// freshPrefix returns a prefix that no key of any run has begun with.
func freshPrefix() string { return "bt" + strings.ToLower(crand.Text()[:16]) }

// subject is a store in a case.
type subject struct {
	backend.Store
	taker  backend.Atomic // nil if it is none
	prefix string         // of all keys of this case
	thrift int            // divides the scripts and races of a case
	seed   uint64
	rand   *rand.Rand // for the goroutine of the case

	contents Contents // of the server, in a case that looks into it

	// model is the contract, to which every answer to do and take is held. Nil: the
	// case compares, as after calls side by side or in the time of the world.
	model *oracle.Store

	// stale reports whether a call at an instant, whose label is stale, is to be made
	// again by AnyLabel. Nil: each is.
	stale func(now time.Time, err error) bool
}

// with returns s with another model.
func (s *subject) with(model *oracle.Store) *subject {
	c := *s
	c.model = model
	return &c
}

// key is a stored key of this case.
func (s *subject) key(name string) string { return s.prefix + ":" + name }

// counter returns a Counter on the store, for keys that no other case has and no
// other name in this case.
func (s *subject) counter(name string, cfg counter.Config) *counter.Counter {
	cfg.Prefix = s.prefix + name
	return value(counter.New(s.Store, cfg))
}

// enough is a time that no machine is too slow for.
const enough = 30 * time.Second
