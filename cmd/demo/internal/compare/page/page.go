// Package page writes reports of a comparison as one HTML page that needs
// nothing else: no network, no script, no file beside it.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
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

	pageTemplate = template.Must(template.New("page").Parse(pageHTML))
)

// page is what the template is filled with.
type page struct {
	Policy   string
	Style    template.CSS
	Title    string
	Sections []section
}

// section is one report.
type section struct {
	ID                   string
	Limit                string
	Facts                []fact
	Findings             []string
	Table                table
	Curve                curves
	WorstCost, WrongCost shown
	Heat                 shown
}

type fact struct{ Name, Value string }

// Write writes one page with a section for each report, in their order. Names
// and keys in the reports may be anything that an attacker sends: they are
// shown as text, shortened where they are long. Numbers that are none are shown
// as a dash and are not drawn. An error is that of w, or says that a chart
// could not be drawn; nothing is written before all are drawn.
func Write(w io.Writer, reports []*compare.Report) error {
	if slices.Contains(reports, nil) {
		return errors.New("page: one of the reports is nil")
	}
	style := inkCSS() + pageCSS
	sum := sha256.Sum256([]byte(style))
	p := page{
		// The style is allowed by what it is: one that somebody smuggles in is not.
		Policy: "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
		Style:  template.CSS(style),
		Title:  title(reports),
	}
	for i, r := range reports {
		s, err := newSection(i, r)
		if err != nil {
			return err
		}
		p.Sections = append(p.Sections, s)
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
		s += ": " + strings.Join(limits, ", ") + " on " + clean(reports[0].Log, nameLength)
	}
	return s
}

func newSection(i int, r *compare.Report) (section, error) {
	s := section{
		ID:       fmt.Sprintf("r%d", i+1),
		Limit:    clean(r.Limit, nameLength),
		Facts:    facts(r),
		Findings: findings(r),
		Table:    newTable(r),
	}
	var err error
	if s.Curve, err = newCurves(r); err != nil {
		return s, err
	}
	if s.WorstCost, err = newCost(r, worstAxis); err != nil {
		return s, err
	}
	if s.WrongCost, err = newCost(r, wrongAxis(r.Events)); err != nil {
		return s, err
	}
	s.Heat, err = newHeat(r)
	return s, err
}

// facts are what was replayed.
func facts(r *compare.Report) []fact {
	all := []fact{
		{"Log", clean(r.Log, 600)},
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
		all = append(all, fact{"Bad lines, skipped", words.Commas(r.BadLines) + "; the first: " + clean(r.FirstBad, nameLength)})
	}
	return all
}
