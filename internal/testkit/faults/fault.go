package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// kind is a kind of fault.
type kind struct {
	name   string
	means  string // for the page
	breaks string // the condition of a promise that does not hold meanwhile; for the page
	weight int    // frequency beside other faults
	where  func(w *world) bool
	severs bool
	loses  bool
	do     func(w *world, rng *rand.Rand, p *process)
}

// standsStill is the fault that callers bring about by themselves.
const standsStill = "caller stands still"

func network(w *world) bool   { return w.server != nil }
func everywhere(*world) bool  { return true }
func onRedis(w *world) bool   { return worldKind(w.name) == "redis" }
func onLosing(w *world) bool  { return w.losing }
func keepsData(w *world) bool { return onRedis(w) && !w.losing }
func none(*world) bool        { return false }

// short is a time that some calls outlast; long is a time that no call outlasts.
func short(rng *rand.Rand) time.Duration {
	return 10*time.Millisecond + time.Duration(rng.Int64N(int64(400*time.Millisecond)))
}

func long(rng *rand.Rand) time.Duration {
	if rng.IntN(8) > 0 {
		return short(rng)
	}
	return 500*time.Millisecond + time.Duration(rng.Int64N(int64(2*time.Second)))
}

// kinds are the faults, in the order of the page.
var kinds = []kind{
	{name: "server stands still", means: "SIGSTOP, for 10 ms to 2.5 s", weight: 6, where: network,
		do: func(w *world, rng *rand.Rand, _ *process) {
			w.server.Pause()
			w.campaign.sleep(long(rng))
			w.server.Resume()
		}},
	{name: "server killed, data kept", means: "SIGKILL and a restart, `appendonly yes`, `appendfsync always`", weight: 3, where: keepsData, severs: true,
		do: func(w *world, rng *rand.Rand, _ *process) {
			w.server.Kill()
			w.campaign.sleep(short(rng))
			w.server.Restart()
		}},
	{name: "server killed, data lost", means: "SIGKILL and an empty restart", breaks: "the store keeps its buckets", weight: 1, where: onLosing, severs: true, loses: true,
		do: func(w *world, rng *rand.Rand, _ *process) {
			w.server.Kill()
			w.campaign.sleep(short(rng))
			if onRedis(w) {
				os.RemoveAll(filepath.Join(w.server.Dir(), "appendonlydir"))
			}
			w.server.Restart()
		}},
	{name: "server emptied", means: "`flush_all`, `FLUSHALL`", breaks: "the store keeps its buckets", weight: 1, where: onLosing, loses: true,
		do: func(w *world, _ *rand.Rand, _ *process) {
			if onRedis(w) {
				w.must("FLUSHALL", "+OK")
				return
			}
			w.must("flush_all", "OK")
			// memcached empties itself by the second.
			w.campaign.sleep(1100 * time.Millisecond)
		}},
	{name: "scripts forgotten", means: "`FUNCTION FLUSH`, `SCRIPT FLUSH`", weight: 4, where: onRedis,
		do: func(w *world, _ *rand.Rand, _ *process) {
			w.must("FUNCTION FLUSH", "+OK")
			w.must("SCRIPT FLUSH", "+OK")
		}},
	{name: "clients killed", means: "`CLIENT KILL TYPE normal`", weight: 4, where: onRedis, severs: true,
		do: func(w *world, _ *rand.Rand, _ *process) { w.must("CLIENT KILL TYPE normal SKIPME yes", ":") }},
	{name: "caller process stopped", means: "SIGSTOP, for 10 ms to 2.5 s", weight: 6, where: everywhere,
		do: func(w *world, rng *rand.Rand, p *process) { p.stop(long(rng)) }},
	{name: "caller process killed", means: "SIGKILL, and another one in its place", weight: 2, where: everywhere, severs: true,
		do: func(w *world, rng *rand.Rand, p *process) {
			p.kill()
			w.campaign.sleep(short(rng))
			if err := w.start(p.link); err != nil {
				w.campaign.stage.Report(err)
			}
		}},
	{name: standsStill, means: "between reading its clock and using the reading, for up to 300 ms, in memory up to 3 s", where: none},
	{name: "link silent", means: "nothing arrives, either way, for 10 ms to 2.5 s", weight: 6, where: network,
		do: func(w *world, rng *rand.Rand, p *process) {
			p.link.Pause()
			w.campaign.sleep(long(rng))
			p.link.Resume()
		}},
	{name: "requests late", means: "by 10 to 410 ms, answers are not", weight: 6, where: network,
		do: func(w *world, rng *rand.Rand, p *process) {
			p.link.Delay(short(rng), 0)
			w.campaign.sleep(long(rng))
			p.link.Delay(0, 0)
		}},
	{name: "answers late", means: "by 10 to 410 ms, requests are not", weight: 6, where: network,
		do: func(w *world, rng *rand.Rand, p *process) {
			p.link.Delay(0, short(rng))
			w.campaign.sleep(long(rng))
			p.link.Delay(0, 0)
		}},
	{name: "answers lost", means: "requests arrive, answers do not, then the connections are closed", weight: 4, where: network, severs: true,
		do: func(w *world, rng *rand.Rand, p *process) {
			p.link.DropReplies(true)
			w.campaign.sleep(short(rng))
			p.link.Cut()
			p.link.DropReplies(false)
		}},
	{name: "connections closed", means: "all of a process, one to five times", weight: 6, where: network, severs: true,
		do: func(w *world, rng *rand.Rand, p *process) {
			for range 1 + rng.IntN(5) {
				p.link.Cut()
				w.campaign.sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
			}
		}},
	{name: "connections reset", means: "all of a process, one to five times", weight: 6, where: network, severs: true,
		do: func(w *world, rng *rand.Rand, p *process) {
			for range 1 + rng.IntN(5) {
				p.link.Abort()
				w.campaign.sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
			}
		}},
	{name: "answers garbled", means: "the first byte of each piece that arrives", weight: 4, where: network, severs: true,
		do: func(w *world, rng *rand.Rand, p *process) {
			p.link.GarbleHeads(true)
			w.campaign.sleep(short(rng) / 2)
			p.link.GarbleHeads(false)
		}},
	{name: "clock steps", means: "at once, within the skew", weight: 8, where: network,
		do: func(_ *world, rng *rand.Rand, p *process) {
			p.tellClock(order{Caller: rng.IntN(callersEach), Offset: within(rng)})
		}},
	{name: "clock drifts", means: "by 5 to 55 ms a second, within the skew", weight: 8, where: network,
		do: func(_ *world, rng *rand.Rand, p *process) {
			p.tellClock(order{Caller: rng.IntN(callersEach), Offset: within(rng),
				PerSecond: 5*time.Millisecond + time.Duration(rng.Int64N(int64(50*time.Millisecond)))})
		}},
	{name: "clock beyond the skew", means: "by 50 ms to 1 s more than callers may be apart, then back", breaks: "clocks agree within Skew", weight: 2, where: network,
		do: func(w *world, rng *rand.Rand, p *process) {
			o := order{Caller: rng.IntN(callersEach), Beyond: true, Offset: skew + 50*time.Millisecond + time.Duration(rng.Int64N(int64(time.Second)))}
			if rng.IntN(2) == 0 {
				o.Offset = -o.Offset
			}
			p.tellClock(o)
			w.campaign.sleep(time.Second + long(rng))
			p.tellClock(order{Caller: o.Caller})
		}},
}

// within returns an offset that two callers may have at once.
func within(rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(skew)+1)) - skew/2
}

// tellClock changes the clock of a caller.
func (p *process) tellClock(o order) {
	if err := p.order(o); err != nil {
		p.world.campaign.stage.Report(err)
	}
}

// must sends a command to the server; an error ends the campaign.
func (w *world) must(request, end string) {
	answer, err := w.ask(request, "\r\n")
	if err == nil && len(answer) < len(end) || err == nil && answer[:len(end)] != end {
		err = fmt.Errorf("%s: %q", request, answer)
	}
	if err != nil {
		w.campaign.stage.Report(fmt.Errorf("%s: %w", w.name, err))
	}
}

// suffer lets faults come upon the world until the campaign is over: each kind
// once, in an order by chance, and then by weight.
func (w *world) suffer(rng *rand.Rand) {
	var here []kind
	sum := 0
	for _, k := range kinds {
		if k.where(w) {
			here = append(here, k)
			sum += k.weight
		}
	}
	first := rng.Perm(len(here))
	for i := 0; w.campaign.goesOn(); i++ {
		k := here[0]
		if i < len(first) {
			k = here[first[i]]
		} else {
			pick := rng.IntN(sum)
			for _, k = range here {
				if pick -= k.weight; pick < 0 {
					break
				}
			}
		}
		w.campaign.sleep(time.Duration(rng.ExpFloat64() * float64(w.campaign.calm)))
		if !w.campaign.goesOn() {
			return
		}
		p := w.any(rng)
		if p == nil {
			continue
		}
		f := w.begin(k.name, k.severs, k.loses)
		k.do(w, rng, p)
		w.end(f)
	}
}
