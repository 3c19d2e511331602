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
		"name": name, "least": least,
		"ratio": func(n, max int64) string { return text.Number(float64(n)/float64(max), 2) + " × the limit" },
	}).Parse(pageHTML))
)

func hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// section is the data of a report for the template.
type section struct {
	*compare.Report
	ID, Log, FirstBad, Span string // without the folder of the log, which may tell who made the page
	Columns                 []measure
	Rows                    [][]cell
	Found                   findings
	Panels                  []panel
	Top                     panel // the panel with the fullest window drawn
	Below                   int   // panels at or below the limit
	Charts                  charts
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
		s.Charts.Growth = grown(r.Growth)
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
	Kept, Right       []string // the algorithms without an overfull window, and without a wrong decision
	Fullest, Wrongest *compare.Algorithm
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
	Growth *growth   `json:"growth"`
}

// panel is the curve of an algorithm.
type panel struct {
	Name string
	Ours bool  // abacus
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
		p := panel{Name: name(s.Algorithms[i].Name), Ours: s.Algorithms[i].Source == "abacus", High: slices.Max(counts)}
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
