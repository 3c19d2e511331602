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
	"strings"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/cmd/internal/web"
	"github.com/abacus-go/abacus/internal/words"
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
	Curve        string
	Panels       []panel
	Worst, Wrong captioned
	Heat         heat
	Charts       charts
}

type fact struct{ Name, Value string }

// nameLength and keyLength bound the shown characters of a name and of a key.
const (
	nameLength = 60
	keyLength  = 120
)

func name(a *compare.Algorithm) string { return text.Clean(a.Name, nameLength) }

// Write writes a page with a section for each report of a comparison, in order.
// Names and keys in the reports may come from an attacker: both are shown as text,
// shortened where the text is long. After an error in the making of the page
// nothing is written.
func Write(w io.Writer, reports []*compare.Report) error {
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
		limits = append(limits, r.Limit)
	}
	_, log := filepath.Split(reports[0].Log)
	return "Rate limiters compared: " + text.Clean(strings.Join(limits, ", "), 4*nameLength) + " on " + text.Clean(log, nameLength)
}

func newSection(i int, r *compare.Report) section {
	s := section{
		ID:       fmt.Sprintf("r%d", i+1),
		Limit:    text.Clean(r.Limit, nameLength),
		Facts:    facts(r),
		Findings: findings(r),
		Table:    newTable(r),
		Heat:     newHeat(r),
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
		{"Log", text.Clean(log, 600)},
		{"Limit", text.Clean(r.Limit, nameLength)},
		{"Events", words.Commas(r.Events)},
		{"Keys", words.Commas(int64(r.Keys))},
		{"From", text.Instant(r.From)},
		{"To", text.Instant(r.To)},
		{"Span", text.Roughly(r.To.Sub(r.From))},
		{"Store", text.Clean(r.Store, nameLength)},
	}
	for _, f := range []fact{{"Skew", r.Skew}, {"Stamps run back by", r.RunsBack}} {
		if f.Value != "0s" {
			all = append(all, fact{f.Name, text.Clean(f.Value, nameLength)})
		}
	}
	if r.WholeSeconds {
		all = append(all, fact{"Stamps", "whole seconds, which prove nothing about buckets of a second"})
	}
	if r.Others > 0 {
		all = append(all, fact{"Other requests, left out", words.Commas(r.Others)})
	}
	if r.BadLines > 0 {
		all = append(all, fact{"Bad lines, skipped", words.Commas(r.BadLines) + "; the first: " + text.Clean(strings.Replace(r.FirstBad, folder, "", 1), nameLength)})
	}
	return all
}
