// Package page writes reports of a comparison as a single HTML page that needs no
// network and no other file. The charts are drawn in the page by uPlot; the
// sentences and the tables need no script.
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

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/internal/words"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	// uPlot is the library for the charts, from the package uplot of the npm
	// registry, version 1.6.32.
	//
	//go:embed uplot-1.6.32/uPlot.iife.min.js
	uPlotJS string
	//go:embed uplot-1.6.32/uPlot.min.css
	uPlotCSS string
	//go:embed uplot-1.6.32/LICENSE
	uPlotLicense string

	style  = uPlotCSS + "\n" + pageCSS
	script = "/*\n" + uPlotLicense + "*/\n" + uPlotJS + "\n" + pageJS

	// policy allows the style and the script by hash. Smuggled code has another
	// hash, and content from elsewhere is not allowed.
	policy = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + hash(style) + "; script-src " + hash(script)

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

func hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// page is the data of the template.
type page struct {
	Policy   string
	Style    template.CSS
	Script   template.JS
	Title    string
	Sections []section
}

// section is the data of a report.
type section struct {
	ID           string
	Limit        string
	Facts        []fact
	Findings     []string
	Table        table
	Curve        captioned
	Panels       []panel
	Worst, Wrong captioned
	Heat         heat
	Charts       charts
}

type fact struct{ Name, Value string }

// Write writes a page with a section for each report, in order. Names and keys in
// the reports may come from an attacker: both are shown as text, shortened where
// the text is long. NaN and infinity are shown as a dash and are not drawn. After
// an error in the making of the page nothing is written.
func Write(w io.Writer, reports []*compare.Report) error {
	if i := slices.Index(reports, nil); i >= 0 {
		return fmt.Errorf("page: reports[%d] of %d is nil, want a report", i, len(reports))
	}
	p := page{Policy: policy, Style: template.CSS(style), Script: template.JS(script), Title: title(reports)}
	for i, r := range reports {
		p.Sections = append(p.Sections, newSection(i, r))
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func title(reports []*compare.Report) string {
	var limits []string
	for _, r := range reports {
		limits = append(limits, clean(r.Limit, nameLength))
	}
	s := "Rate limiters compared"
	if len(limits) > 0 {
		_, log := filepath.Split(reports[0].Log)
		s += ": " + strings.Join(limits, ", ") + " on " + clean(log, nameLength)
	}
	return s
}

func newSection(i int, r *compare.Report) section {
	s := section{
		ID:       fmt.Sprintf("r%d", i+1),
		Limit:    clean(r.Limit, nameLength),
		Facts:    facts(r),
		Findings: findings(r),
		Table:    newTable(r),
		Heat:     newHeat(r),
		Charts:   charts{Exact: -1},
	}
	s.Curve, s.Panels = newCurves(r, &s.Charts)
	s.Worst = newWorst(r, &s.Charts)
	s.Wrong = newWrong(r, &s.Charts)
	return s
}

// facts describe the log and the conditions.
func facts(r *compare.Report) []fact {
	folder, log := filepath.Split(r.Log) // the folder may tell who made the page, and is not shown
	all := []fact{
		{"Log", clean(log, 600)},
		{"Limit", clean(r.Limit, nameLength)},
		{"Events", words.Commas(r.Events)},
		{"Keys", words.Commas(int64(r.Keys))},
		{"From", instant(r.From)},
		{"To", instant(r.To)},
		{"Span", span(r.From, r.To)},
		{"Store", clean(r.Store, nameLength)},
	}
	for _, f := range []fact{{"Skew", r.Skew}, {"Stamps run back by", r.RunsBack}} {
		if f.Value != "" && f.Value != "0s" {
			all = append(all, fact{f.Name, clean(f.Value, nameLength)})
		}
	}
	if r.BadLines > 0 {
		all = append(all, fact{"Bad lines, skipped", words.Commas(r.BadLines) + "; the first: " + clean(strings.Replace(r.FirstBad, folder, "", 1), nameLength)})
	}
	return all
}
