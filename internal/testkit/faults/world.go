package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/program"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/ticket"
)

// world is a store, its callers, and the faults of both. Nothing goes from a world to
// another.
type world struct {
	setting
	campaign *campaign
	number   int
	prefix   string // of its keys

	// The store, unless it is in the process.
	servers []*servertest.Server // upon which faults come
	addrs   []string             // that callers connect to: of the servers, and of sentinels
	master  string               // the name by which sentinels know the master
	masters *masters             // of a world with replicas
	cluster *servertest.ClusterSetup
	placed  *placement // of several memcached
	proxies []*servertest.Proxy
	watch   func() (known int64) // notes what the store does by itself, and returns until when all is noted

	mu        sync.Mutex
	members   []string   // servers and sentinels that a new process is told
	started   int        // processes so far
	processes []*process // that live
	checkers  [len(ladders)]*history.Checker
	sum       history.Report // of all checkers
	underWay  map[*disturbance]bool
	known     int64 // of watch
	faults    map[string]int
	calls     int64
	slowest   latency // of calls whose process did not stand still meanwhile
	overdue   int64   // calls longer than their Timeout and a taking back
	hung      int64   // calls that are no more than late
	left      leftover
}

// disturbance is a fault whose keys can be told by ladder.
type disturbance struct {
	history.Fault
	keys keySet
}

// keySet reports whether a fault concerns a key; nil: every key.
type keySet func(ladder int, key string) bool

// latency is the duration of a call, and its bound.
type latency struct{ took, timeout time.Duration }

// leftover counts the resources left behind by a world.
type leftover struct {
	ended     int // processes that ended by themselves
	processes int // with goroutines more than before
	conns     int // connections to the server more than before
	stacks    string
}

// serve sets the servers of the world, all for callers to connect to.
func (w *world) serve(servers ...*servertest.Server) {
	w.servers = servers
	for _, s := range servers {
		w.addrs = append(w.addrs, s.Addr)
	}
	w.members = w.addrs
}

// local reports whether the store is in the process.
func (w *world) local() bool { return len(w.servers) == 0 }

// open starts the store and its callers.
func (w *world) open() {
	w.watch = func() int64 { return math.MaxInt64 }
	w.underWay, w.faults = map[*disturbance]bool{}, map[string]int{}
	for i := range w.checkers {
		w.checkers[i] = history.New(checkConfig(w.name, i), &w.sum)
	}
	if w.setUp != nil {
		w.setUp(w)
	}
	for range w.crew {
		var l links
		for _, addr := range w.addrs {
			l = append(l, servertest.NewProxy(w.campaign.stage, addr, 0))
		}
		w.proxies = append(w.proxies, l...)
		w.start(l)
	}
}

// links are the links of a process to the servers of its world, in the order of
// world.addrs, or some of the links.
type links []*servertest.Proxy

func (l links) each(do func(p *servertest.Proxy)) {
	for _, p := range l {
		do(p)
	}
}

// note notes what p tells.
func (w *world) note(p *process, l *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.at = l.At
	switch {
	case l.Begin != nil:
		l.Begin.Process, l.Begin.Began = p.number, l.At
		p.open[l.Begin.ID] = l.Begin
	case l.End != nil:
		c, b := l.End, p.open[l.End.ID]
		delete(p.open, c.ID)
		c.Process, c.Began = b.Process, b.Began
		w.calls++
		w.checkers[b.Ladder].Call(c)
		w.time(p, c, latency{time.Duration(c.Ended - c.Began), b.Timeout})
	case l.Done != nil:
		p.done = l.Done
		w.left.ended++
		if l.Done.Stacks != "" {
			w.left.stacks = l.Done.Stacks
			w.left.processes++
		}
		w.faults[standsStill] += int(l.Done.Pauses)
	}
}

// slack is the delay beyond a deadline on a busy machine, accepted by the page.
const slack = 50 * time.Millisecond

// time notes the duration of a call. A process that stands still keeps no deadline,
// a Forget has a deadline of its own, and a store in the process needs none.
func (w *world) time(p *process, c *history.Call, l latency) {
	if w.local() || c.Paused || c.Kind == history.Forget {
		return
	}
	for _, stop := range p.pauses {
		if stop.from <= c.Ended && c.Began <= stop.to {
			return
		}
	}
	if w.slowest.timeout == 0 || l.took-l.timeout > w.slowest.took-w.slowest.timeout {
		w.slowest = l
	}
	if l.took > l.timeout+min(settle, l.timeout)+slack {
		w.overdue++
	}
	if l.took > l.timeout+hang {
		w.hung++
	}
}

// hang is a time that no call lasts beyond its Patience, however busy the machine.
const hang = 10 * time.Second

// bury takes the dead process p off the world. The calls that p had begun may have
// happened.
func (w *world) bury(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().UnixNano()
	for _, c := range p.open {
		c.Outcome, c.Ended = history.Open, now
		c.Lo, c.Hi = c.Began+int64(c.Ahead-10*skew), now+int64(c.Ahead+10*skew)
		w.checkers[c.Ladder].Call(&c.Call)
	}
	w.processes = slices.DeleteFunc(w.processes, func(other *process) bool { return other == p })
}

// begin notes a fault that is about to come, with an end still unknown.
func (w *world) begin(f history.Fault, keys keySet) *disturbance {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := &disturbance{f, keys}
	if d.From == 0 {
		d.From = time.Now().UnixNano()
	}
	w.underWay[d] = true
	w.faults[f.Name]++
	return d
}

// end notes that a fault is over.
func (w *world) end(d *disturbance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.To == 0 {
		d.To = time.Now().UnixNano()
	}
	delete(w.underWay, d)
	if d.Name == w.campaign.blind {
		d.Loses = history.Nothing
	}
	for i, c := range w.checkers {
		f := d.Fault
		if d.keys != nil {
			f.Keys = func(key string) bool { return d.keys(i, key) }
		}
		c.Fault(f)
	}
}

// check looks at all calls of which nothing is missing.
func (w *world) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	upTo := w.known
	for _, p := range w.processes {
		upTo = min(upTo, p.at)
		for _, c := range p.open {
			upTo = min(upTo, c.Began)
		}
	}
	for d := range w.underWay {
		upTo = min(upTo, d.From)
	}
	for _, c := range w.checkers {
		c.Advance(upTo)
	}
}

// report returns the findings of the checkers so far.
func (w *world) report() *history.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := w.sum
	return &sum
}

// fail ends the campaign.
func (w *world) fail(err error) { w.campaign.stage.Report(fmt.Errorf("%s: %w", w.name, err)) }

// sleep waits, at most until the campaign is over.
func (w *world) sleep(d time.Duration) { program.Sleep(w.campaign.ctx, d) }

// any is a live process of the world.
func (w *world) any(rng *rand.Rand) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.processes) == 0 {
		return nil
	}
	return w.processes[rng.IntN(len(w.processes))]
}

// close ends the callers, and looks at what is left.
func (w *world) close() {
	w.mu.Lock()
	processes := slices.Clone(w.processes)
	w.mu.Unlock()
	ticket.SideBySide(len(processes), func(i int) {
		if err := processes[i].end(); err != nil {
			w.fail(err)
		}
	})
	w.awaitKnown(time.Now().UnixNano())
	w.check()
	within(endTime, func() bool {
		w.left.conns = 0
		for _, p := range w.proxies {
			w.left.conns += p.Open()
		}
		return w.left.conns == 0
	})
}

// look calls watch.
func (w *world) look() {
	known := w.watch()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = max(w.known, known)
}

// awaitKnown waits until watch has noted all of before the instant.
func (w *world) awaitKnown(instant int64) {
	var known int64
	is := within(3*endTime, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		known = w.known
		return known >= instant
	})
	require.True(w.campaign.stage, is, "what %s did by itself is unknown since %v", w.name, time.Since(time.Unix(0, known)))
}
