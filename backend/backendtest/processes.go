package backendtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/promise"
	"github.com/abacus-go/abacus/internal/testkit/child"
	"github.com/abacus-go/abacus/internal/testkit/long"
)

// Processes holds a store that is shared over a network to its promises among
// several processes of the operating system, with clocks apart by the skew: races
// for a few places, within a bucket and across its end, and callers on the clock of
// the world, of which no window may hold too many.
//
// start starts the server, or finds a server, and returns the argument that open
// needs, such as an address; start is called once. open makes the store of a
// process. The processes are the running test binary, called again for the test
// that calls Processes: the test should do nothing else, at least not before. In
// the further processes start is not called, and Processes does not return. The system
// must let processes inherit files, as Unix does.
//
//	func TestProcesses(t *testing.T) {
//		backendtest.Processes(t, startServer, func(addr string) (backend.Store, error) { return dial(addr) })
//	}
func Processes(t *testing.T, start func(t testing.TB) (where string), open func(where string) (backend.Store, error)) {
	t.Helper()
	serveChild(open)
	if err := processes(t.Name(), start(t), open); err != nil {
		t.Error(err)
	}
}

const (
	crew     = 8 // processes
	racers   = 40
	places   = 7
	crewSkew = 100 * time.Millisecond
)

// processes is the part of Processes for the first process.
func processes(test, where string, open func(string) (backend.Store, error)) (err error) {
	prefix := freshPrefix()
	var children []*child.Process
	defer func() {
		for _, c := range children {
			err = errors.Join(err, c.Close(), c.Wait())
		}
	}()
	for i := range crew {
		c, err := begin(test, job{Where: where, Prefix: prefix, Ahead: crewSkew * time.Duration(i) / (crew - 1)})
		if err != nil {
			return err
		}
		children = append(children, c)
	}
	store, err := open(where)
	if err != nil {
		return err
	}
	return caught(func() {
		raceOfProcesses(children, store, prefix)
		astrideOfProcesses(children, store, prefix, os.Stderr)
		windowOfProcesses(children)
	})
}

// results are the calls of an order, by all children.
type results struct {
	all    []outcome
	hits   []admission
	failed int
	last   string // of the failures
}

// all asks every child at once.
func all(children []*child.Process, o order) (r results) {
	reports := make([]report, len(children))
	together(len(children), func(i int) { reports[i] = ask(children[i], o) })
	for _, report := range reports {
		r.all = append(r.all, report.Calls...)
	}
	for _, out := range r.all {
		if out.Hit != nil {
			r.hits = append(r.hits, *out.Hit)
		}
		if out.Failed != "" {
			r.failed, r.last = r.failed+1, out.Failed
		}
	}
	return r
}

// raceOfProcesses has 40 racers in all processes for 7 places.
func raceOfProcesses(children []*child.Process, store backend.Store, prefix string) {
	for round := range long.Rounds(6, 42) {
		o := order{Race: fmt.Sprint("race", round), Limits: []string{"7/d", "7/m, 9/h, 8/d", "8/h, 7 per day in UTC"}[round%3], Shift: time.Until(noon), Timeout: enough}
		r := all(children, o)
		if r.failed > 0 {
			failf("%d processes, %s, round %d: %d calls failed: %s", len(children), o.Limits, round, r.failed, r.last)
		}
		if len(r.hits) != places {
			failf("%d processes, %s, round %d: %d admitted, want %d", len(children), o.Limits, round, len(r.hits), places)
		}
		c := value(counter.New(store, o.config(prefix)))
		n := value(c.Count(context.Background(), counter.Key{Event: "race", Feature: o.Race}, 24*time.Hour))
		if n.High != places {
			failf("%d processes, %s, round %d: %d are left after the race, want %d", len(children), o.Limits, round, n.High, places)
		}
	}
}

// config is the Config of a lone caller on the clock of a race that is right.
func (o order) config(prefix string) counter.Config {
	return counter.Config{Prefix: prefix, Skew: crewSkew, Patience: enough, Now: func() time.Time { return time.Now().Add(o.Shift) }}
}

// windowOfProcesses has all processes hit a key for some seconds.
func windowOfProcesses(children []*child.Process) {
	o := order{For: 5 * time.Second, Limits: "5/s, 9/3s"}
	r := all(children, o)
	if denied := len(r.all) - len(r.hits) - r.failed; len(r.hits) == 0 || denied == 0 {
		failf("%d processes: %d admitted, %d denied, %d failed: that proves nothing", len(children), len(r.hits), denied, r.failed)
	}
	for _, limit := range counter.MustLimits(o.Limits) {
		if n := fullest(r.hits, limit.Per); n > limit.Max {
			failf("%d processes, limit %s: %d admitted within a window", len(children), limit, n)
		}
	}
}

// admission is an admitted hit: its label, and the true time of the label's
// reading.
type admission struct{ Label, At time.Time }

// fullest returns the number of hits in the fullest window of length per, by the
// labels or in true time.
func fullest(hits []admission, per time.Duration) int64 {
	var labels, instants []time.Time
	for _, h := range hits {
		labels, instants = append(labels, h.Label), append(instants, h.At)
	}
	return max(promise.Fullest(labels, per), promise.Fullest(instants, per))
}
