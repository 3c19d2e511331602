// Package page shows reports of a comparison: as text for a terminal, and as a single
// HTML page that needs no network and no other file. The charts are drawn in the page by
// uPlot; the sentences and the tables need no script.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/cmd/internal/web"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	style  = web.UPlotCSS + "\n" + web.BaseCSS + "\n" + pageCSS
	script = web.UPlotJS + "\n" + pageJS

	// policy allows the style and the script by hash. Smuggled code has another
	// hash, and content from elsewhere is not allowed.
	policy = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + hash(style) + "; script-src " + hash(script)

	pageTemplate = template.Must(template.New("page").Funcs(text.Funcs).Funcs(template.FuncMap{
		"name": name, "shade": shade,
		"ratio":  func(n, max int64) string { return text.Number(float64(n)/float64(max), 2) + " × the limit" },
		"minute": func(hour time.Time, m int) time.Time { return hour.UTC().Add(time.Duration(m) * time.Minute) },
	}).Parse(pageHTML))
)

func hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// section is the data of a report for the template.
type section struct {
	*compare.Report
	ID, Log, FirstBad, Span     string // without the folder of the log, which may tell who made the page
	Columns                     []measure
	Rows                        [][]cell
	Found                       findings
	Panels                      []panel
	Top                         panel // the panel with the fullest window drawn
	Below                       int   // panels at or below the limit
	Heated, Minutes, Busy, Most int64 // of the heat: hits, minutes, minutes with hits, hits of the busiest minute
	Busiest                     time.Time
	Charts                      charts
}

// name is a name fit for display.
func name(s string) string { return text.Clean(s, 60) }

// Write writes a page with a section for each report of a comparison, in order.
// Names and keys in the reports may come from an attacker: both are shown as text,
// shortened where the text is long. After an error in the making of the page
// nothing is written.
func Write(w io.Writer, reports []*compare.Report) error {
	var sections []section
	var limits []string
	for i, r := range reports {
		s := section{Report: r, ID: fmt.Sprintf("r%d", i+1), Found: find(r), Span: text.Roughly(r.To.Sub(r.From))}
		folder, log := filepath.Split(r.Log)
		s.Log, s.FirstBad = log, strings.Replace(r.FirstBad, folder, "", 1)
		s.Columns, s.Rows = table(r)
		s.drawCurves()
		s.drawCosts()
		s.drawHeat()
		sections, limits = append(sections, s), append(limits, r.Limit)
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, map[string]any{
		"Policy": policy, "Style": template.CSS(style), "Script": template.JS(script), "Sections": sections, "Limits": strings.Join(limits, ", "),
	})
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// findings sum up the table.
type findings struct {
	Kept, Right                     []string // the algorithms without an overfull window, and without a wrong decision
	Fullest, Wrongest, Small, Large *compare.Algorithm
}

func wrong(a *compare.Algorithm) int64 { return a.WronglyAdmitted + a.WronglyDenied }

func find(r *compare.Report) (f findings) {
	f.Fullest, f.Wrongest = &r.Algorithms[0], &r.Algorithms[0]
	for i := range r.Algorithms {
		a := &r.Algorithms[i]
		if a.WorstWindow <= 1 {
			f.Kept = append(f.Kept, name(a.Name))
		}
		if wrong(a) == 0 {
			f.Right = append(f.Right, name(a.Name))
		}
		if a.WorstWindow > f.Fullest.WorstWindow {
			f.Fullest = a
		}
		if wrong(a) > wrong(f.Wrongest) {
			f.Wrongest = a
		}
		if a.BytesPerKey > 0 && (f.Small == nil || a.BytesPerKey < f.Small.BytesPerKey) {
			f.Small = a
		}
		if a.BytesPerKey > 0 && (f.Large == nil || a.BytesPerKey > f.Large.BytesPerKey) {
			f.Large = a
		}
	}
	return f
}

// Wrong is the most wrong decisions of an algorithm.
func (f findings) Wrong() int64 { return wrong(f.Wrongest) }

// charts is the data of a section for page.js.
type charts struct {
	Max    int64     `json:"max"`    // the limit, the dashed line of each curve
	Top    int64     `json:"top"`    // of the common scale of all curves
	Times  []float64 `json:"times"`  // seconds since the Unix epoch, ascending
	Counts [][]int64 `json:"counts"` // Counts[i][j]: hits in the window of algorithm i ending at Times[j]; the exact algorithm is the first
	Costs  []scatter `json:"costs"`
}

// scatter is a chart of errors against memory, a dot for each algorithm.
type scatter struct {
	Label string   `json:"label"` // of the vertical axis
	Unit  string   `json:"unit"`  // follows a value of the vertical axis
	Line  *float64 `json:"line"`  // a dashed line across, or nil
	Log   bool     `json:"log"`   // the vertical axis is logarithmic above the least value other than zero
	Dots  []dot    `json:"dots"`

	How  string   `json:"-"` // of the caption
	Left []string `json:"-"` // not drawn: the server has not told their memory
}

type dot struct {
	Number int     `json:"number"` // in the table, from 1
	Name   string  `json:"name"`
	Ours   bool    `json:"ours"`
	Bytes  float64 `json:"bytes"` // above zero
	Wrong  float64 `json:"wrong"` // zero or more
}

// panel is the curve of an algorithm.
type panel struct {
	Name string
	High int64 // the most in a window
	At   time.Time
}

// drawCurves fills in a chart for each algorithm, since a dozen lines in a single chart
// would hide each other, and all charts on the same scales.
func (s *section) drawCurves() {
	c := s.Curve
	s.Charts.Counts, s.Charts.Max, s.Charts.Top = c.Counts, c.Max, c.Max
	for _, t := range c.Times {
		s.Charts.Times = append(s.Charts.Times, float64(t.UnixMicro())/1e6)
	}
	for i, counts := range c.Counts {
		p := panel{Name: name(s.Algorithms[i].Name), High: slices.Max(counts)}
		p.At = c.Times[slices.Index(counts, p.High)]
		if p.High <= c.Max {
			s.Below++
		}
		if i == 0 || p.High > s.Top.High {
			s.Top = p
		}
		s.Panels = append(s.Panels, p)
	}
	s.Charts.Top = max(c.Max, s.Top.High)
}

// drawCosts fills in the charts of the fullest true windows and of wrong decisions, in
// percent of events, against memory.
func (s *section) drawCosts() {
	limit := 1.0
	s.Charts.Costs = []scatter{
		{Label: "fullest true window, × the limit", Unit: "× the limit", Line: &limit,
			Log: s.Found.Fullest.WorstWindow > 20,
			How: "on the dashed line or below it the limit is kept. No other is both smaller and less beyond the limit than"},
		{Label: "wrong decisions, % of events", Unit: "% of events decided wrongly", Log: true,
			How: "further down is more exact. No other is both smaller and more exact than"},
	}
	for i := range s.Algorithms {
		a := &s.Algorithms[i]
		for j, errs := range []float64{a.WorstWindow, 100 * float64(wrong(a)) / float64(s.Events)} {
			if c := &s.Charts.Costs[j]; a.BytesPerKey > 0 {
				c.Dots = append(c.Dots, dot{i + 1, name(a.Name), a.Source == "abacus", a.BytesPerKey, errs})
			} else {
				c.Left = append(c.Left, name(a.Name))
			}
		}
	}
}

// Best is the names of the dots that no other dot beats in memory or in error without
// being worse in the other. Errors up to the dashed line are equal.
func (s scatter) Best() (names []string) {
	wrong := func(d dot) float64 {
		if s.Line != nil {
			return max(d.Wrong, *s.Line)
		}
		return d.Wrong
	}
	for _, d := range s.Dots {
		if !slices.ContainsFunc(s.Dots, func(o dot) bool {
			return o.Bytes <= d.Bytes && wrong(o) <= wrong(d) && (o.Bytes < d.Bytes || wrong(o) < wrong(d))
		}) {
			names = append(names, d.Name)
		}
	}
	return names
}

// drawHeat sums up the minutes of a key.
func (s *section) drawHeat() {
	s.Minutes = int64(60 * len(s.Heat.Hits))
	for i, row := range s.Heat.Hits {
		for m, count := range row {
			if s.Heated += count; count > 0 {
				s.Busy++
			}
			if count > s.Most {
				s.Most, s.Busiest = count, s.Heat.Hours[i].Add(time.Duration(m)*time.Minute)
			}
		}
	}
}

// shade is the colour of a minute with hits, one of six: each stands for the same
// multiple of the one before, so that a minute of 2 hits and a minute of 4 differ although
// another has a thousand.
func shade(count, most int64) int {
	return 1 + int(5*math.Log(float64(count))/math.Log(max(2, float64(most))))
}
