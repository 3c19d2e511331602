// Package memory_test sets the embedded store beside other limiters that work in
// memory and count.
//
//	cd bench && go test ./memory                          a test, of seconds
//	cd bench && go test -v -count=1 ./memory -size short  a benchmark
package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
)

// contestant is a way to limit keys, made with all limits, the longest last.
type contestant interface {
	// hit counts a hit. The error is errRefused if a limit has no room, and errGaveUp if
	// other callers were in the way.
	hit(key string) error
	// used returns the hits of the key under the longest limit, less the refill of
	// a token bucket meanwhile.
	used(key string) (int64, error)
}

var (
	errRefused = errors.New("a call was refused")
	errGaveUp  = errors.New("a call gave up")
	ctx        = context.Background()
)

// kinds are the contestants, each as in its own documentation: a limiter for each
// limit, asked in turn, where a library knows a single limit only.
var kinds = []struct {
	name string
	how  string
	peer bool
	make func(counter.Limits) (contestant, error)
}{
	{"abacus", "one Take with all limits", false, newAbacus},
	{"x/time/rate", "a Limiter for each key in a sync.Map", true, newXTime},
	{"go-limiter", "memorystore, Take", true, newGoLimiter},
	{"ulule/limiter", "its memory store, Get", true, newUlule},
	{"throttled", "memstore without a bound on keys, which is its faster one, and RateLimitCtx; up to 1,000 tries under contention instead of 10, which a busy key exhausts; a call that gives up even so counts nothing", true, newThrottled},
	{"httprate", "OnLimit, which its middleware calls: it counts, as Status does not; without its response headers, since nobody else here writes any", true, newHTTPRate},
}

type abacus struct {
	*counter.Counter
	store  *memory.Store
	limits counter.Limits
}

func newAbacus(limits counter.Limits) (contestant, error) {
	store := memory.New(memory.Config{MaxBuckets: math.MaxInt32})
	c, err := counter.New(store, counter.Config{Ladder: limits.Ladder()})
	if err != nil {
		return nil, err
	}
	return &abacus{c, store, limits}, nil
}

func (a *abacus) hit(key string) error {
	v, err := a.Take(ctx, counter.Key{Event: "signup", Feature: key}, 1, a.limits)
	if err == nil && !v.Allowed {
		return errRefused
	}
	return err
}

func (a *abacus) used(key string) (int64, error) {
	n, err := a.Count(ctx, counter.Key{Event: "signup", Feature: key}, a.limits[len(a.limits)-1].Per)
	return n.High, err
}

type xtime struct {
	limits   counter.Limits
	limiters []sync.Map // of each limit
}

func newXTime(limits counter.Limits) (contestant, error) {
	return &xtime{limits, make([]sync.Map, len(limits))}, nil
}

func (x *xtime) limiter(i int, key string) *rate.Limiter {
	l, there := x.limiters[i].Load(key)
	if !there {
		limit := x.limits[i]
		l, _ = x.limiters[i].LoadOrStore(key, rate.NewLimiter(rate.Limit(float64(limit.Max)/limit.Per.Seconds()), int(limit.Max)))
	}
	return l.(*rate.Limiter)
}

func (x *xtime) hit(key string) error {
	for i := range x.limits {
		if !x.limiter(i, key).Allow() {
			return errRefused
		}
	}
	return nil
}

func (x *xtime) used(key string) (int64, error) {
	last := len(x.limits) - 1
	return x.limits[last].Max - int64(x.limiter(last, key).Tokens()), nil
}

type goLimiter []limiter.Store

func newGoLimiter(limits counter.Limits) (contestant, error) {
	var stores goLimiter
	for _, limit := range limits {
		// A store forgets keys after 12 hours unless it is told otherwise.
		s, err := memorystore.New(&memorystore.Config{Tokens: uint64(limit.Max), Interval: limit.Per, SweepMinTTL: max(12*time.Hour, limit.Per)})
		if err != nil {
			return nil, err
		}
		stores = append(stores, s)
	}
	return stores, nil
}

func (g goLimiter) hit(key string) error {
	for _, store := range g {
		if _, _, _, ok, err := store.Take(ctx, key); err != nil {
			return err
		} else if !ok {
			return errRefused
		}
	}
	return nil
}

func (g goLimiter) used(key string) (int64, error) {
	tokens, remaining, err := g[len(g)-1].Get(ctx, key)
	return int64(tokens - remaining), err
}

type ululed []*ulule.Limiter

func newUlule(limits counter.Limits) (contestant, error) {
	var all ululed
	for _, limit := range limits {
		// A store for each limit: two limits on a store would share a count.
		all = append(all, ulule.New(ululememory.NewStore(), ulule.Rate{Period: limit.Per, Limit: limit.Max}))
	}
	return all, nil
}

func (u ululed) hit(key string) error {
	for _, l := range u {
		if c, err := l.Get(ctx, key); err != nil {
			return err
		} else if c.Reached {
			return errRefused
		}
	}
	return nil
}

func (u ululed) used(key string) (int64, error) {
	c, err := u[len(u)-1].Peek(ctx, key)
	return c.Limit - c.Remaining, err
}

type throttledGCRA []*throttled.GCRARateLimiterCtx

func newThrottled(limits counter.Limits) (contestant, error) {
	var all throttledGCRA
	for _, limit := range limits {
		store, err := memstore.NewCtx(0)
		if err != nil {
			return nil, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(int(limit.Max), limit.Per), MaxBurst: int(limit.Max) - 1})
		if err != nil {
			return nil, err
		}
		l.SetMaxCASAttemptsLimit(1000)
		all = append(all, l)
	}
	return all, nil
}

func (g throttledGCRA) hit(key string) error {
	for _, l := range g {
		if limited, _, err := l.RateLimitCtx(ctx, key, 1); err != nil { // its store in memory has no error of its own
			return fmt.Errorf("%w: %w", errGaveUp, err)
		} else if limited {
			return errRefused
		}
	}
	return nil
}

func (g throttledGCRA) used(key string) (int64, error) {
	_, r, err := g[len(g)-1].RateLimitCtx(ctx, key, 0)
	return int64(r.Limit - r.Remaining), err
}

type httpRate struct {
	limiters []*httprate.RateLimiter
	request  *http.Request
}

func newHTTPRate(limits counter.Limits) (contestant, error) {
	h := &httpRate{}
	for _, limit := range limits {
		h.limiters = append(h.limiters, httprate.NewRateLimiter(int(limit.Max), limit.Per, httprate.WithResponseHeaders(httprate.ResponseHeaders{})))
	}
	var err error
	h.request, err = http.NewRequest(http.MethodPost, "http://localhost/signup", nil)
	return h, err
}

func (h *httpRate) hit(key string) error {
	for _, l := range h.limiters {
		if l.OnLimit(nil, h.request, key) {
			return errRefused
		}
	}
	return nil
}

func (h *httpRate) used(key string) (int64, error) {
	_, count, err := h.limiters[len(h.limiters)-1].Status(key)
	return int64(math.Round(count)), err
}

// floor is the least work of any limiter: read the clock, lock, look the key up,
// add to a number. It limits nothing.
type floor struct {
	mu     sync.Mutex
	counts map[string]*int64
	now    time.Time
}

func newFloor(counter.Limits) (contestant, error) { return &floor{counts: map[string]*int64{}}, nil }

func (f *floor) hit(key string) error {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = now
	n := f.counts[key]
	if n == nil {
		n = new(int64)
		f.counts[key] = n
	}
	*n++
	return nil
}

func (f *floor) used(key string) (int64, error) {
	n := f.counts[key]
	if n == nil {
		return 0, fmt.Errorf("the key %q is not there", key)
	}
	return *n, nil
}
