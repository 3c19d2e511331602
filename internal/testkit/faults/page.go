package main

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/testkit/history"
	"github.com/abacus-go/abacus/internal/testkit/page"
)

//go:embed page.tmpl
var text string

// page is docs/reports/reliability.md as the campaign has found it.
func (c *campaign) page(command string) string {
	return c.Fill(text, command, map[string]string{"Seed": fmt.Sprint(c.seed), "Calls": page.Thousands(c.calls()), "Faults": page.Thousands(c.faults("")),
		"Verdict": c.judgement(), "Held": c.held(), "Apart": c.apart(), "Why": c.why(), "Kinds": c.byKind(), "Came": c.byFault(), "Leftover": c.leftover()})
}

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
		c.row("processes with goroutines left", func(w *world, _ *history.Report) string { return strconv.Itoa(w.left.processes) }),
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
