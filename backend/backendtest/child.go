package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/child"
	"github.com/abacus-go/abacus/internal/testkit/parse"
)

// job is the purpose of a child.
type job struct {
	Where  string
	Prefix string
	Ahead  time.Duration // how far its clock is
}

// order is one task of a child.
type order struct {
	Race   string        // racers for this key; or, if the key is empty,
	For    time.Duration // one caller after the other, for so long
	Limits string

	// The racers of a child begin at Start, or at once, and up to Within later, on a
	// clock ahead of the true time by Shift and the child's own error.
	Start   time.Time
	Within  time.Duration
	Shift   time.Duration
	Timeout time.Duration
}

// report is the result of an order.
type report struct {
	Calls []outcome
	Error string
}

// outcome is the end of a call.
type outcome struct {
	Hit    *admission // if it was admitted
	Failed string     // for the store's sake
	Told   time.Time  // the instant, in true time, to which a loser was told to wait
	Took   time.Duration
}

// begin starts the running binary again, for one test.
func begin(test string, j job) (*child.Process, error) {
	test = "^" + strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^") + "$" // one test, or subtest
	return child.Start(j, "-test.run="+test, "-test.timeout=5m")
}

// ask gives an order and waits for the report.
func ask(c *child.Process, o order) (r report) {
	mustf(errors.Join(c.Send(o), c.Lines.Decode(&r)), "process %d", c.Process.Pid)
	if r.Error != "" {
		failf("process %d: %s", c.Process.Pid, r.Error)
	}
	return r
}

// serveChild does the orders of this process and ends it, if Processes has begun it: the
// first process judges.
func serveChild(open func(string) (backend.Store, error)) {
	child.Serve(func(j job, orders *json.Decoder, out *os.File) error {
		store, opening := open(j.Where)
		for {
			var o order
			if err := orders.Decode(&o); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			var r report
			if err := caught(func() { j.do(value(store, opening), o, &r) }); err != nil {
				r.Error = err.Error()
			}
			if err := json.NewEncoder(out).Encode(r); err != nil {
				return err
			}
		}
	})
}

// do fills in the report on an order, or stops at what no order may meet.
func (j job) do(store backend.Store, o order, r *report) {
	ahead, limits := o.Shift+j.Ahead, counter.MustLimits(o.Limits)
	cfg := counter.Config{Prefix: j.Prefix, Skew: crewSkew, Patience: o.Timeout, Now: func() time.Time { return time.Now().Add(ahead) }}
	if o.Race == "" {
		cfg.Ladder, cfg.Settle = parse.Ladder("100ms:3s, 1s:3s"), time.Second
	}
	c := value(counter.New(store, cfg))
	take := func(key counter.Key) (out outcome) {
		from := time.Now()
		v, err := c.Take(context.Background(), key, 1, limits)
		to := time.Now()
		switch out.Took = to.Sub(from); {
		case errors.Is(err, backend.ErrStore):
			out.Failed = err.Error()
		case err != nil:
			must(err)
		case v.Allowed:
			out.Hit = &admission{v.At(), v.At().Add(-ahead)}
		default:
			out.Told = to.Add(v.RetryAfter)
		}
		return out
	}
	if o.Race == "" {
		for began := time.Now(); time.Since(began) < o.For; time.Sleep(time.Duration(4+thrift()) * time.Millisecond) { // leaves the processor to the others
			r.Calls = append(r.Calls, take(counter.Key{Event: "window", Feature: "x"}))
		}
		return
	}
	r.Calls = make([]outcome, racers/crew)
	together(len(r.Calls), func(i int) {
		time.Sleep(time.Until(o.Start) + rand.N(o.Within+1)) // late on a busy machine, and the race is another one
		r.Calls[i] = take(counter.Key{Event: "race", Feature: o.Race})
	})
}
