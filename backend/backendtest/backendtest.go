// Package backendtest holds stores to the contract of [backend.Store],
// [backend.Atomic] and [backend.Forgetter]. An author of a store calls [Run] from a test:
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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/race"
)

// Run holds a store to the contract, each case on a store that open makes. The
// stores may share a server: no two cases use the same key, in this run or in any
// other, and nothing else on the server is touched. The server should still be used
// by nobody else, and have room for some 200,000 buckets. open may use t as a test
// does; functions left to t.Cleanup run after the cases.
//
// All cases run on the store as it is. With all but Do hidden, the cases run again
// that then ask the store in another way, so that a [backend.Atomic] or
// [backend.Forgetter] is also tested as a [backend.Store]. Run the cases with the
// race detector: it finds a store that uses a request after the return of the call.
//
// A store with a timeout of its own should get a generous timeout, some seconds:
// the suite must pass on a slow machine. A case that fails at random prints a seed,
// to be given in the environment variable BACKENDTEST_SEED.
func Run(t *testing.T, open func(t testing.TB) backend.Store) {
	t.Helper()
	for _, form := range forms(open(t)) {
		t.Run(form.name, func(t *testing.T) {
			// Cases that wait for the clock begin first and are waited for last.
			waiting := map[string]chan error{}
			for _, c := range form.cases() {
				if c.waits {
					store, done := form.dress(open(t)), make(chan error, 1)
					waiting[c.name] = done
					go func() { done <- c.hold(store, form.thrift*race.Thrift) }()
				}
			}
			for _, wait := range []bool{false, true} {
				for _, c := range form.cases() {
					if c.waits != wait {
						continue
					}
					t.Run(c.name, func(t *testing.T) {
						var err error
						if wait {
							err = <-waiting[c.name]
						} else {
							err = c.hold(form.dress(open(t)), form.thrift*race.Thrift)
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
			}
		})
	}
}

// check is a case. Cases are data, so that the suite can be tried on broken stores.
type check struct {
	name    string
	rule    string // the rule, in the words of the contract
	take    bool   // it is about Take
	forgets bool   // it is about Forget and Forgotten
	instead uses   // if these are hidden, the case asks the store in another way
	waits   bool   // for the clock of the world
	run     func(*subject) error
}

// uses is a set of the interfaces that a store may have beside Store.
type uses uint8

const (
	usesTake   uses = 1 << iota // Atomic, or Local
	usesForget                  // Forgetter
)

// checks are all cases.
func checks() []check {
	var all []check
	for _, of := range [][]check{basics, numbers, lives, crowds, takes, mixedKeys, labels, forgets, counters, calls} {
		all = append(all, of...)
	}
	return all
}

// form is a way to look at a store.
type form struct {
	name      string
	taker     bool
	forgetter bool
	hides     uses
	thrift    int
	dress     func(backend.Store) backend.Store
}

// forms are the ways to look at a store like this store. Hiding nothing is no
// second way. With Forgetter hidden alone, all calls but Forget are those of the
// store as it is, and fewer will do.
func forms(store backend.Store) []form {
	_, taker := store.(backend.Atomic)
	_, forgetter := store.(backend.Forgetter)
	_, local := store.(backend.Local)
	var hides uses
	if taker || local {
		hides |= usesTake
	}
	if forgetter {
		hides |= usesForget
	}
	thrift := 1
	if hides == usesForget {
		thrift = 4
	}
	all := []form{{"as it is", taker, forgetter, 0, 1, func(s backend.Store) backend.Store { return s }}}
	if hides != 0 {
		all = append(all, form{"Do alone", false, false, hides, thrift, func(s backend.Store) backend.Store { return struct{ backend.Store }{s} }})
	}
	return all
}

// cases returns the cases of a store in this form. A form that hides something
// leaves out the cases that would repeat the same calls.
func (f form) cases() []check {
	var cases []check
	for _, c := range checks() {
		if (f.taker || !c.take) && (f.forgetter || !c.forgets) && (f.hides == 0 || f.hides&c.instead != 0) {
			cases = append(cases, c)
		}
	}
	return cases
}

// hold runs the case on a store, with its scripts and races divided by thrift. The
// error says what is wrong, and by which rule.
func (c check) hold(store backend.Store, thrift int) error {
	seed := rand.Uint64()
	if given, err := strconv.ParseUint(os.Getenv("BACKENDTEST_SEED"), 10, 64); err == nil {
		seed = given
	}
	s := &subject{Store: store, prefix: freshPrefix(), thrift: thrift, seed: seed, rand: rand.New(rand.NewPCG(seed, 0))}
	s.taker, _ = store.(backend.Atomic)
	s.forgetter, _ = store.(backend.Forgetter)
	if err := c.run(s); err != nil {
		return fmt.Errorf("%w\n\trule: %s\n\tagain with: BACKENDTEST_SEED=%d", err, c.rule, seed)
	}
	return nil
}

// freshPrefix returns a prefix that no key of any run has begun with.
func freshPrefix() string { return "bt" + strings.ToLower(crand.Text()[:16]) }

// subject is a store in a case.
type subject struct {
	backend.Store
	taker     backend.Atomic    // nil if it is none
	forgetter backend.Forgetter // nil if it is none
	prefix    string            // of all keys of this case
	thrift    int               // divides the scripts and races of a case
	seed      uint64
	rand      *rand.Rand // for the goroutine of the case
}

// key is a stored key of this case.
func (s *subject) key(name string) string { return s.prefix + ":" + name }

// counter returns a Counter on the store, for keys that no other case has and no
// other name in this case.
func (s *subject) counter(name string, cfg counter.Config) (*counter.Counter, error) {
	cfg.Prefix = s.prefix + name
	return counter.New(s.Store, cfg)
}

// enough is a time that no machine is too slow for.
const enough = 30 * time.Second
