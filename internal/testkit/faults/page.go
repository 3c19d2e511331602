package main

import (
	_ "embed"
	"fmt"
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
	calls, faults, _ := c.sums()
	var columns []column
	for _, w := range c.worlds {
		columns = append(columns, w.column())
	}
	return c.Fill(text, command, map[string]any{"Seed": c.seed, "Calls": calls, "Faults": faults, "Broken": c.verdict() != nil,
		"Worlds": columns, "Kinds": history.KindNames, "AllFaults": kinds, "Reasons": reasons})
}

// reasons are the reasons of denials, in words.
var reasons = [history.Reasons]string{"admitted or added", "under way", "remembered", "failed, connection lost", "failed, connection held", "**none**"}

// column is a world in the tables of the page.
type column struct {
	*history.Report
	Name                    string
	Made                    int64 // calls
	Faults                  map[string]int
	Slowest, Overdue, Conns string // "-": not of this world
	Ended, Leaking          int    // processes
}

func (w *world) column() column {
	c := column{Report: w.report(), Name: w.name, Made: w.calls, Faults: w.faults, Ended: w.left.ended, Leaking: w.left.processes, Slowest: "-", Overdue: "-", Conns: "-"}
	if w.slowest.timeout > 0 {
		c.Slowest = fmt.Sprintf("%s (%s)", w.slowest.took.Round(time.Millisecond), dur.Format(w.slowest.timeout))
	}
	if !w.local() {
		c.Overdue, c.Conns = page.Thousands(w.overdue), fmt.Sprint(w.left.conns)
	}
	return c
}

// Outcomes are the outcomes of the calls of a kind, as far as there are any.
func (c column) Outcomes(kind int) string {
	var parts []string
	for _, outcome := range []history.Outcome{history.Done, history.Denied, history.Failed, history.Open} {
		if n := c.Calls[kind][outcome]; n > 0 {
			parts = append(parts, page.Thousands(n)+" "+outcome.String())
		}
	}
	return strings.Join(parts, ", ")
}

// sums counts the calls, the faults and the breaks of the promises of all worlds.
func (c *campaign) sums() (calls, faults, breaks int64) {
	for _, w := range c.worlds {
		breaks += w.report().Bad
		w.mu.Lock()
		calls += w.calls
		for _, n := range w.faults {
			faults += int64(n)
		}
		w.mu.Unlock()
	}
	return calls, faults, breaks
}
