package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/program"
	"github.com/abacus-go/abacus/limiter"
)

// event is the event of all rules.
const event = "flood"

// job is the description of a service.
type job struct {
	Store, Addr string
	Policy      string
	Services    int // that share the limits
	Limits      counter.Limits
	Within      time.Duration // of a decision; zero: the limiter's default
}

// ending is the last line of a service; the first is its address.
type ending struct {
	Outcomes map[string]int64 // how often each
	Stats    limiter.Stats
	Leak     string // goroutines that are left, if any
}

// serve does a job until its input ends.
func serve(j job, in *json.Decoder, stdout *os.File) error {
	out := json.NewEncoder(stdout)
	logging.Disable() // of go-redis: its server stands still on purpose
	before := goleak.IgnoreCurrent()
	store, err := openStore(j.Store, j.Addr)
	if err != nil {
		return err
	}
	var outcomes [256]atomic.Int64
	lim, err := limiterOf(j, store, func(d limiter.Decision) { outcomes[d.Outcome].Add(1) })
	if err != nil {
		return err
	}
	if err := errors.Join(listen(lim, in, out), store.Close()); err != nil {
		return err
	}
	end := ending{Outcomes: map[string]int64{}, Stats: lim.Stats()}
	for o := range outcomes {
		if n := outcomes[o].Load(); n > 0 {
			end.Outcomes[limiter.Outcome(o).String()] = n
		}
	}
	end.Leak = program.Left(before)
	return out.Encode(end)
}

// closer is a store that is closed again.
type closer interface {
	backend.Store
	io.Closer
}

// openStore opens the store of a kind, with all defaults.
func openStore(kind, addr string) (closer, error) {
	if kind == "redis" {
		return redis.Open("redis://"+addr, redis.Config{})
	}
	return memcache.New(memcache.Config{}, addr)
}

// limiterOf makes the limiter of a job.
func limiterOf(j job, store backend.Store, observe func(limiter.Decision)) (*limiter.Limiter, error) {
	c, err := counter.New(store, counter.Config{})
	if err != nil {
		return nil, err
	}
	policy := policyOf(j.Policy)
	cfg := limiter.Config{
		Rules:        []limiter.Rule{{Event: event, Kind: "user", Limits: j.Limits, OnFailure: policy.onFailure}},
		DecideWithin: j.Within,
		MaxInFlight:  policy.inFlight,
		Observe:      observe,
	}
	if policy.onFailure == limiter.FailLocal {
		if cfg.Local, err = counter.New(memory.New(memory.Config{}), counter.Config{Skew: c.Config().Skew + cmp.Or(cfg.DecideWithin, limiter.DefaultDecideWithin)}); err != nil {
			return nil, err
		}
		cfg.Share = shareOf(j.Services)
	}
	return limiter.New(c, cfg)
}

// listen serves requests until the input ends, and ends the limiter.
func listen(lim *limiter.Limiter, in *json.Decoder, out *json.Encoder) error {
	handler, err := site(lim)
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler)
	if err := out.Encode(server.Listener.Addr().String()); err != nil {
		return err
	}
	if err := in.Decode(new(any)); err != io.EOF {
		return err
	}
	server.Close() // says which connections hang
	late, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	return lim.Close(late) // the error of hits that nobody has carried
}

// site is the handler of a service. /hit is limited, and tells the label of the
// hit; /peek decides about the query's n hits, and answers as /hit does.
func site(lim *limiter.Limiter) (http.Handler, error) {
	user := httplimit.Header("User")
	limit, err := httplimit.New(httplimit.Config{Limiter: lim, Event: event, Features: []httplimit.Source{httplimit.NewSource("user", user)}, VerdictInContext: true})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /hit", limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, _ := httplimit.VerdictOf(r.Context(), event)
		at := v.At()
		if at.IsZero() { // let through, and not counted
			at = time.Now()
		}
		w.Header().Set("At", strconv.FormatInt(at.UnixNano(), 10))
	})))
	mux.HandleFunc("GET /peek", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		v, err := lim.Peek(r.Context(), event, n, feature.New("user", r.Header.Get("User")))
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case v.Allowed:
		case v.Degraded != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	return mux, nil
}
