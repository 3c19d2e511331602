package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/page"
)

// page is docs/reports/reliability.md as the campaign has found it.
func (c *campaign) page(command string) string {
	var b strings.Builder
	if err := pageTemplate.Execute(&b, struct {
		Date, Took, Machine, Versions, Command  string
		Seed                                    uint64
		Calls, Faults                           string
		Held, Apart, Why, Kinds, Came, Leftover string
		Verdict                                 string
	}{
		Date: c.began.UTC().Format("2006-01-02 15:04 UTC"), Took: c.took.Round(time.Second).String(),
		Machine: page.Machine(), Versions: c.versions, Command: command, Seed: c.seed,
		Calls: page.Thousands(c.calls()), Faults: page.Thousands(c.faults("")),
		Held: c.held(), Apart: c.apart(), Why: c.why(), Kinds: c.byKind(), Came: c.byFault(), Leftover: c.leftover(),
		Verdict: c.judgement(),
	}); err != nil {
		return err.Error() // nothing in the template can fail
	}
	return b.String()
}

var pageTemplate = template.Must(template.New("page").Parse(`# Under faults

This page is for everybody who asks whether [the promises](../guarantees.md) hold when servers,
links and processes fail. A program (internal/testkit/faults) wrote the page. The program lets
several processes count on real servers, and lets faults come upon the servers, the links and the
processes. All calls and answers are written down, and checked against the promises.

| | |
|---|---|
| date | {{.Date}} |
| run | {{.Took}}, {{.Calls}} calls, {{.Faults}} faults |
| machine | {{.Machine}} |
| versions | {{.Versions}} |
| seed | {{.Seed}} |

    {{.Command}}

The command makes the same calls and lets the same faults come, as far as real time allows. "make
faults FOR=1h" runs an hour under a new seed and writes this page.

{{.Verdict}}

## What was checked

The columns of the tables are stores:

- **that loses**: the store is emptied now and then, or killed and restarted without its data.
- **that evicts**: the store has too little memory.
- **memcached nodes**: four servers, of which callers know three or four.
- **redis sentinel**: a master with two replicas and three sentinels.
- **redis cluster**: three masters with a replica each.
- **memcached, redis, memory**: the store keeps every hit that it has answered. So every window is
  within the conditions of promise 2, except near a clock beyond the skew.

The first table has the windows without a loss and without a clock beyond the skew. The other
windows are [judged apart](#windows-judged-apart).

{{.Held}}
The rows are:

- **Windows**: the fullest window for each admitted hit and each limit of the key that the hit came
  under (or, with an atomic step, under a stricter limit). Windows are judged by the labels as the
  clocks read them, and by the instants in true time at which the labels were read. A hit counts
  until its refund, or a Forget of the key, may have begun. Hits by Add are not counted. A *full*
  window held exactly Max.
- **Labels**: Verdict.At is a reading of the caller's clock, made between the call and its return.
- **Counts**: the number told by a Count, a Peek or an admitted Take is no less than the hits of the
  calls that had returned before. A lower number has *lost* a hit.
- **Denials**: hits within Per, the width of the oldest bucket, and Skew left no room. By ticket
  Settle is added, where a limit is as wide as its ticket bucket.
- **Slowest**: the call that went furthest beyond its Patience, or came nearest to its Patience, of
  the calls whose process did not stand still meanwhile.
- **Later than a taking back may be**: a call that has to take back additions may last longer than
  its Patience by as much again, or by Settle, if Settle is shorter. This row counts the calls that
  lasted longer, with 50 ms more for the machine.

### Windows judged apart

A hit that may have been lost does not count in a window; all other hits do. With the hits that may
have been lost, a window may hold Max more for each loss. These hits may have been lost:

- **server killed, emptied**: all hits; of several servers, the hits of the keys on this server.
- **list of servers changed**: all hits of the keys that change their server, while processes with
  the old list and processes with the new list stand side by side.
- **evicted**: on memcached the hits of the named bucket (*watch evictions*, as many as the
  statistics tell), on Redis the hits of the named key (the event *evicted*). If Redis has evicted
  one of several values of a key, the key can count longer ([storage](../storage.md)), and so deny
  too early.
- **failover**: the hits of a span of time. The replica is compared with its master ten times a
  second. The span begins when the replica was last seen to be as far in the stream of writes as its
  master had been at the look before. The span ends at the instant at which no other server takes
  itself for the master.

A taking back of a hit that was lost, or on memcached a Forget of a key with calls under way, can
take other hits. The hits that a clock beyond the skew admits have no bound here; other callers hit
the same keys meanwhile.

{{.Apart}}
### Why calls were denied

Each denial is counted in the first row that explains the denial, together with the rows above:

- **admitted or added**: hits that were admitted or added.
- **under way**: hits of calls that were under way at the time.
- **remembered**: hits that were a reason when the process was last denied. A process remembers a
  denial for a second at most.
- **failed, connection lost**: hits of calls that failed while connections were lost or processes
  killed. These hits may stay.
- **failed, connection held**: hits of calls that failed though connections held. These hits should
  not have stayed.

{{.Why}}
## Calls

- **Callers.** A process has four callers, each with a clock and a Patience of its own (60, 250, 500
  or 1000 ms), and several goroutines for each.
- **Keys.** All processes of a store share its keys, except on the memory store, where each process
  has its own keys. A part of the keys is hit far beyond the limits, another part is always fresh,
  and TakeAll takes up to five keys at once. A crowd comes to a fresh key at the end of a bucket
  every 2 s. Keys on an evicting server are never forgotten.
- **Limits** differ by call: 3/2s to 30/1m on tiers of 100 ms, 1 s and 10 s, and 40/1m, 400/1h on
  seconds and minutes.
- **killed** are calls of processes that died meanwhile.
- **No call hung**: a call that lasts 10 s longer than its Patience would be an error.

{{.Kinds}}
## Faults

{{.Came}}
## What was left

Counted when all callers had closed their stores: the goroutines beyond the number at the start, in
the processes that ended by themselves, and the connections to the servers.

{{.Leftover}}
## What was not tried

- A machine that loses its power.
- Clocks that stand still.
- A change of ladder under load.
- A sentinel whose answers lie about their lengths: go-redis, up to v9.23.0 at least, panics on an
  empty address of the master.
- Damage to answers that no reader can notice, such as a digit in the place of another: neither
  protocol has a checksum.
`))

// judgement is the result in a sentence or two.
func (c *campaign) judgement() string {
	if err := c.verdict(); err != nil {
		return "**Promises were broken**, or something was left behind. The program printed the calls around each\n" +
			"break."
	}
	return "**No promise was broken** where its conditions held: no window was over Max, no denial was without a\n" +
		"reason, no count was too low, no label was outside its call."
}

// byWorld is a table with a column for each world.
func (c *campaign) byWorld(rows ...[]string) string {
	head := []string{""}
	for _, w := range c.worlds {
		head = append(head, w.name)
	}
	return page.Table(append([][]string{head}, rows...))
}

// row is a row of a table by world.
func (c *campaign) row(name string, cell func(w *world, r *history.Report) string) []string {
	row := []string{name}
	for _, w := range c.worlds {
		row = append(row, cell(w, w.report()))
	}
	return row
}

// counted is a row of numbers.
func (c *campaign) counted(name string, n func(r *history.Report) int64) []string {
	return c.row(name, func(_ *world, r *history.Report) string { return page.Thousands(n(r)) })
}

func (c *campaign) held() string {
	return c.byWorld(
		c.row("calls", func(w *world, _ *history.Report) string { return page.Thousands(w.calls) }),
		c.counted("windows", func(r *history.Report) int64 { return r.Windows - r.Lossy - r.Beyond }),
		c.counted("full, of all windows", func(r *history.Report) int64 { return r.Full }),
		c.counted("**over**", func(r *history.Report) int64 { return r.Over }),
		c.counted("labels", func(r *history.Report) int64 { return r.Labels }),
		c.counted("**outside their call**", func(r *history.Report) int64 { return r.Mislabelled }),
		c.counted("counts", func(r *history.Report) int64 { return r.Seen }),
		c.counted("**too low: lost**", func(r *history.Report) int64 { return r.Unseen }),
		c.counted("denials", func(r *history.Report) (n int64) {
			for _, of := range r.Reasons {
				n += of
			}
			return n
		}),
		c.counted("**wrongly denied**", func(r *history.Report) int64 { return r.Reasons[history.None] }),
		c.row("slowest call (its Patience)", func(w *world, _ *history.Report) string {
			if w.slowest.timeout == 0 {
				return "-"
			}
			return fmt.Sprintf("%s (%s)", w.slowest.took.Round(time.Millisecond), dur.Format(w.slowest.timeout))
		}),
		c.row("later than a taking back may be", func(w *world, _ *history.Report) string {
			if w.local() {
				return "-"
			}
			return page.Thousands(w.overdue)
		}),
	)
}

func (c *campaign) apart() string {
	return c.byWorld(
		c.counted("windows with a loss", func(r *history.Report) int64 { return r.Lossy }),
		c.counted("over Max", func(r *history.Report) int64 { return r.LossyOver }),
		c.counted("over Max, by a taking back", func(r *history.Report) int64 { return r.HalfForgotten }),
		c.counted("denied by what is left of a key", func(r *history.Report) int64 { return r.Left }),
		c.counted("windows near a clock beyond", func(r *history.Report) int64 { return r.Beyond }),
		c.counted("over Max", func(r *history.Report) int64 { return r.BeyondOver }),
		c.counted("counts and denials near one, not judged", func(r *history.Report) int64 { return r.BeyondSeen + r.BeyondDenied }),
	)
}

func (c *campaign) why() string {
	var rows [][]string
	for i, name := range [history.Reasons]string{"admitted or added", "under way", "remembered", "failed, connection lost", "failed, connection held", "**none**"} {
		rows = append(rows, c.counted(name, func(r *history.Report) int64 { return r.Reasons[i] }))
	}
	return c.byWorld(rows...)
}

func (c *campaign) byKind() string {
	rows := [][]string{}
	for kind := range history.Kinds {
		rows = append(rows, c.row(kind.String(), func(_ *world, r *history.Report) string {
			of := r.Calls[kind]
			var parts []string
			for _, outcome := range []history.Outcome{history.Done, history.Denied, history.Failed, history.Open} {
				if n := of[outcome]; n > 0 {
					parts = append(parts, fmt.Sprintf("%s %s", page.Thousands(n), outcome))
				}
			}
			return strings.Join(parts, ", ")
		}))
	}
	return c.byWorld(rows...)
}

func (c *campaign) byFault() string {
	head := []string{"fault", "meaning", "condition of a promise that it breaks"}
	for _, w := range c.worlds {
		head = append(head, w.name)
	}
	rows := [][]string{head}
	for _, k := range kinds {
		row := []string{k.name, k.means, k.breaks}
		for _, w := range c.worlds {
			row = append(row, page.Thousands(int64(w.faults[k.name])))
		}
		rows = append(rows, row)
	}
	return page.Table(rows)
}

func (c *campaign) leftover() string {
	return c.byWorld(
		c.row("processes that ended", func(w *world, _ *history.Report) string { return strconv.Itoa(w.left.ended) }),
		c.row("goroutines left", func(w *world, _ *history.Report) string { return strconv.Itoa(w.left.goroutines) }),
		c.row("connections left", func(w *world, _ *history.Report) string {
			if w.local() {
				return "-"
			}
			return strconv.Itoa(w.left.conns)
		}),
	)
}

// calls counts the calls of all worlds.
func (c *campaign) calls() (n int64) {
	for _, w := range c.worlds {
		w.mu.Lock()
		n += w.calls
		w.mu.Unlock()
	}
	return n
}

// faults counts the faults of a kind, or of all kinds.
func (c *campaign) faults(name string) (n int64) {
	for _, w := range c.worlds {
		w.mu.Lock()
		for kind, of := range w.faults {
			if name == "" || name == kind {
				n += int64(of)
			}
		}
		w.mu.Unlock()
	}
	return n
}

// bad counts the breaks of the promises.
func (c *campaign) bad() (n int64) {
	for _, w := range c.worlds {
		n += w.report().Bad
	}
	return n
}
