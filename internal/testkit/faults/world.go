package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// world is a store, its callers, and the faults that come upon them. Nothing goes
// from a world to another.
type world struct {
	campaign *campaign
	name     string
	number   int
	prefix   string  // of its keys
	share    float64 // of all calls
	crew     int     // processes at a time
	losing   bool    // the store loses its buckets now and then
	server   *servertest.Server
	idle     int // connections to the server before there were callers

	mu        sync.Mutex
	started   int        // processes so far
	processes []*process // that live
	checkers  [len(ladders)]*history.Checker
	underWay  map[*history.Fault]bool
	faults    map[string]int
	calls     int64
	failed    int64
	slowest   latency // of calls whose process did not stand still meanwhile
	overdue   int64   // calls longer than their Timeout and a taking back
	left      leftover
}

// latency is the duration of a call, and its bound.
type latency struct{ took, timeout time.Duration }

// leftover counts the resources that a world leaves behind.
type leftover struct {
	ended      int // processes that ended by themselves
	goroutines int // more than before, in all of them
	conns      int // connections to the server more than before
	stacks     string
}

// open starts the store and its callers.
func (w *world) open() error {
	w.underWay, w.faults = map[*history.Fault]bool{}, map[string]int{}
	for i := range w.checkers {
		w.checkers[i] = history.New(checkConfig(w.name, i))
	}
	stage := w.campaign.stage
	switch worldKind(w.name) {
	case "memcached":
		w.server = servertest.StartMemcached(stage)
	case "redis":
		if w.losing {
			w.server = servertest.StartRedis(stage)
		} else {
			// Every answer is on disk first: a killed server loses nothing that was
			// answered.
			w.server = servertest.StartRedis(stage, "--appendonly", "yes", "--appendfsync", "always")
		}
	}
	if w.server != nil {
		n, err := w.connections()
		if err != nil {
			return err
		}
		w.idle = n
	}
	for range w.crew {
		var link *servertest.Proxy
		if w.server != nil {
			link = servertest.NewProxy(stage, w.server.Addr, 0)
		}
		if err := w.start(link); err != nil {
			return err
		}
	}
	return nil
}

// note notes what p tells.
func (w *world) note(p *process, l *line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.at = l.At
	switch {
	case l.Begin != nil:
		c := &history.Call{ID: l.Begin.ID, Kind: l.Begin.Kind, Process: p.number, Caller: l.Begin.Caller,
			Began: l.At, N: l.Begin.N, Of: l.Begin.Of}
		for _, a := range l.Begin.Asks {
			c.Asks = append(c.Asks, history.Ask{Key: a.Key, Limits: []counter.Limit(a.Limits)})
		}
		p.open[c.ID], p.begun[c.ID] = c, l.Begin
	case l.End != nil:
		a, c, b := l.End, p.open[l.End.ID], p.begun[l.End.ID]
		delete(p.open, a.ID)
		delete(p.begun, a.ID)
		c.Outcome, c.Ended, c.Lo, c.Hi, c.Beyond, c.Paused = a.Outcome, a.Ended, a.Lo, a.Hi, a.Beyond, a.Paused
		c.Label, c.True, c.Remaining, c.High, c.Error = a.Label, a.True, a.Remaining, a.High, a.Error
		w.calls++
		if c.Outcome == history.Failed {
			w.failed++
		}
		w.checkers[b.Fine].Call(c)
		w.time(p, c, latency{time.Duration(c.Ended - c.Began), time.Duration(b.Timeout)})
	case l.Done != nil:
		p.done = l.Done
		w.left.ended++
		w.left.goroutines += max(0, l.Done.After-l.Done.Before)
		if l.Done.Stacks != "" {
			w.left.stacks = l.Done.Stacks
		}
		w.faults[standsStill] += int(l.Done.Pauses)
	case l.Error != "":
		w.campaign.stage.Report(fmt.Errorf("process %d of %s: %s", p.number, w.name, l.Error))
	}
}

// slack is the delay by a busy machine beyond a deadline that the page accepts.
const slack = 50 * time.Millisecond

// time notes the duration of a call. A process that stands still keeps no deadline,
// a Forget has a deadline of its own, and a store in the process needs none.
func (w *world) time(p *process, c *history.Call, l latency) {
	if w.server == nil || c.Paused || c.Kind == history.Forget {
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
}

// bury takes the dead process p off the world. The calls that p had begun may have
// happened.
func (w *world) bury(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now().UnixNano()
	for id, c := range p.open {
		c.Outcome, c.Ended = history.Open, now
		c.Lo, c.Hi = c.Began-int64(10*skew), now+int64(10*skew)
		w.checkers[p.begun[id].Fine].Call(c)
	}
	for i, other := range w.processes {
		if other == p {
			w.processes = append(w.processes[:i:i], w.processes[i+1:]...)
			break
		}
	}
}

// begin notes a fault that is about to come, with a duration still unknown.
func (w *world) begin(name string, severs, loses bool) *history.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &history.Fault{Name: name, From: time.Now().UnixNano(), Severs: severs, Loses: loses}
	w.underWay[f] = true
	w.faults[name]++
	return f
}

// end notes that a fault is over.
func (w *world) end(f *history.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.To = time.Now().UnixNano()
	delete(w.underWay, f)
	for _, c := range w.checkers {
		c.Fault(*f)
	}
}

// check looks at all calls of which nothing is missing.
func (w *world) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	upTo := int64(math.MaxInt64)
	for _, p := range w.processes {
		upTo = min(upTo, p.at)
		for _, c := range p.open {
			upTo = min(upTo, c.Began)
		}
	}
	for f := range w.underWay {
		upTo = min(upTo, f.From)
	}
	for _, c := range w.checkers {
		c.Advance(upTo)
	}
}

// report returns the findings of the checkers so far.
func (w *world) report() *history.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := &history.Report{}
	for _, c := range w.checkers {
		sum.Merge(&c.Report)
	}
	return sum
}

// any is a process of the world that lives.
func (w *world) any(rng *rand.Rand) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.processes) == 0 {
		return nil
	}
	return w.processes[rng.IntN(len(w.processes))]
}

// close ends the callers, and looks at what is left.
func (w *world) close() error {
	w.mu.Lock()
	processes := append([]*process(nil), w.processes...)
	w.mu.Unlock()
	for _, p := range processes {
		if err := p.order(order{Stop: true}); err != nil {
			return err
		}
	}
	for _, p := range processes {
		select {
		case <-p.gone:
		case <-time.After(endTime + 20*time.Second):
			p.kill()
			return fmt.Errorf("process %d of %s does not end", p.number, w.name)
		}
	}
	w.check()
	if w.server == nil {
		return nil
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		n, err := w.connections()
		if err != nil {
			return err
		}
		if w.left.conns = max(0, n-w.idle); w.left.conns == 0 || time.Since(began) > endTime {
			return nil
		}
	}
}
