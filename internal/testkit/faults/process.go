package main

import (
	"fmt"
	"time"

	"github.com/abacus-go/abacus/internal/testkit/child"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// process is a caller process of a world, seen from the campaign.
type process struct {
	world  *world
	number int
	links  links
	*child.Process
	gone chan struct{} // closed when the process is dead and all its lines are noted

	// The world's mu guards these.
	at     int64            // lower bound of the begin of all calls in later lines
	open   map[uint64]*call // that have begun
	pauses []pause
	done   *leftovers
	killed bool
}

// pause is a time in which a process stood still.
type pause struct{ from, to int64 }

// start starts a process of the world, with a number of its own.
func (w *world) start(links links) {
	w.mu.Lock()
	w.started++
	number, members := w.number*1000+w.started, w.members
	w.mu.Unlock()
	p := &process{world: w, number: number, links: links, at: time.Now().UnixNano(), gone: make(chan struct{}), open: map[uint64]*call{}}
	j := job{World: w.name, Process: number, Seed: w.campaign.seed, Prefix: w.prefix, Rate: w.campaign.rate * w.share / float64(w.crew),
		Plant: w.campaign.plant, Callers: callersEach, Each: 2, Skew: skew, Servers: members, Master: w.master, Cluster: w.cluster != nil,
		Links: map[string]string{}, NoForget: w.evicting}
	for i, link := range links {
		j.Links[w.addrs[i]] = link.Addr
	}
	if w.local() {
		j.Prefix = fmt.Sprintf("%s-%d", w.prefix, number) // a store of its own
		j.Each, j.Skew = 12, 0
	}
	p.Process = try.To(child.Start(j))(w.campaign.stage)
	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()
	go p.listen()
}

// order sends the process an order. A dead or dying process gets none.
func (p *process) order(o order) { _ = p.Send(o) }

// listen notes what the process tells, until it is dead.
func (p *process) listen() {
	defer close(p.gone)
	var err error
	for {
		var l line
		if err = p.Lines.Decode(&l); err != nil {
			break
		}
		p.world.note(p, &l)
	}
	_ = p.Cmd.Process.Kill() // who tells no line that can be read is not heard any more
	ended := p.Wait()
	p.world.mu.Lock()
	expected := p.killed || p.done != nil
	p.world.mu.Unlock()
	if !expected {
		p.world.campaign.stage.Report(fmt.Errorf("process %d of %s has ended: %v, %w", p.number, p.world.name, ended, err))
	}
	p.world.bury(p)
}

// stop makes the process stand still for some time.
func (p *process) stop(d time.Duration) {
	p.world.mu.Lock()
	p.pauses = append(p.pauses, pause{time.Now().UnixNano(), 1<<63 - 1})
	p.world.mu.Unlock()
	_ = servertest.Suspend(p.Cmd.Process) // it fails only if the process is dead
	p.world.sleep(d)
	_ = servertest.Continue(p.Cmd.Process)
	p.world.mu.Lock()
	p.pauses[len(p.pauses)-1].to = time.Now().UnixNano()
	p.world.mu.Unlock()
}

// kill kills the process, and waits until all its lines are noted.
func (p *process) kill() {
	p.world.mu.Lock()
	p.killed = true
	p.world.mu.Unlock()
	_ = p.Cmd.Process.Kill()
	<-p.gone
}

// end lets the process end its calls and close its store, and waits until the
// process has gone.
func (p *process) end() error {
	p.order(order{Stop: true})
	select {
	case <-p.gone:
		return nil
	case <-time.After(endTime + 20*time.Second):
		p.kill()
		return fmt.Errorf("process %d does not end", p.number)
	}
}
