package measure

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// shown is the part of the tables of a section that a chart shows. Along x is the first column.
type shown struct {
	Chart               // but for X, the places and the curves
	columns [][2]string // the head of a column, and the name of its curve; "": the heading of the table
}

// charts are the charts of the page, by test.
var charts = map[string]shown{
	"TestManyKeys":               {Chart{Title: "Time of a call over the number of keys, in memory", Y: "ns for one call", Log: true}, [][2]string{{"abacus, ns", "abacus"}, {"go-limiter, ns", "go-limiter"}, {"floor, ns", "floor"}}},
	"TestLongWindows":            {Chart{Title: "Time of a call over the length of its window, in memory", Y: "ns for one call"}, [][2]string{{"abacus, ns", "abacus"}}},
	"TestWindowsOnRedis":         {Chart{Title: "The server's time of a call over the length of its window, on Redis", Y: "us of the server for one call"}, [][2]string{{"server, us", "abacus"}}},
	"TestWindowsOnMemcached":     {Chart{Title: "Time of a call over the length of its window, on memcached", Y: "us for one call"}, [][2]string{{"wall, us", "abacus"}}},
	"TestManyCallersOnRedis":     {Chart{Title: "Calls a second over the number of callers, on Redis", Y: "1,000 calls a second", Log: true}, [][2]string{{"1,000 calls/s", ""}}},
	"TestManyCallersOnMemcached": {Chart{Title: "Calls a second over the number of callers, on memcached", Y: "1,000 calls a second", Log: true}, [][2]string{{"1,000 calls/s", ""}}},
}

// Chart adds a chart of the tables so far. Draw draws it.
func (s *Section) Chart() {
	s.t.Helper()
	c, err := read(charts[s.t.Name()], s.text.String())
	if err == nil && len(c.Curves) == 0 {
		err = fmt.Errorf("measure: no table has a column of the chart of %s", s.t.Name())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintf(&s.text, "\n![%s](%s)\n", c.Title, drawingOf(s.t.Name()))
}

// drawingOf returns the path of a test's chart, next to the page.
func drawingOf(test string) string { return "charts/" + strings.TrimPrefix(test, "Test") + ".svg" }

// Draw draws the charts of a page, from its tables and in the colours of css. The result
// is by path, next to the page.
func Draw(page, css string) (map[string][]byte, error) {
	drawn := map[string][]byte{}
	machine := fact(page, "processor") + "; " + fact(page, "date")
	for _, section := range strings.Split(page, "\n## ") {
		for test, of := range charts {
			if path := drawingOf(test); strings.Contains(section, "]("+path+")") {
				c, err := read(of, section)
				if err == nil {
					drawn[path], err = c.svg(machine, css)
				}
				if err != nil {
					return nil, fmt.Errorf("%s: %w", path, err)
				}
			}
		}
	}
	return drawn, nil
}

// fact is a value of the first table of a page.
func fact(page, name string) string {
	_, rest, _ := strings.Cut(page, "| "+name+" | ")
	value, _, _ := strings.Cut(rest, " |")
	return value
}

// read fills in the places and the curves of a chart.
func read(of shown, section string) (*Chart, error) {
	c, heading := of.Chart, ""
	var head []string
	var columns, curves []int // of the table, and their curves
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case strings.HasPrefix(line, "### "):
			heading = strings.TrimSpace(line[4:])
		case line[0] != '|':
			head = nil
		case head == nil:
			head, columns, curves = cells, nil, nil
			for _, column := range of.columns {
				if i := slices.Index(head, column[0]); i > 0 {
					name := column[1]
					if name == "" {
						name = heading
					}
					c.X, c.Places = head[0], nil
					columns, curves = append(columns, i), append(curves, len(c.Curves))
					c.Curves = append(c.Curves, Curve{Name: name})
				}
			}
		case len(columns) > 0 && line[1] != '-':
			c.Places = append(c.Places, cells[0])
			for k, i := range columns {
				s, err := spread(cells[i])
				if err != nil {
					return nil, err
				}
				c.Curves[curves[k]].At = append(c.Curves[curves[k]].At, s)
			}
		}
	}
	return &c, nil
}

var spreadCell = regexp.MustCompile(`^([\d.,]+) \(([\d.,]+)-([\d.,]+)\)$`)

// spread reads what Series.Spread writes.
func spread(cell string) (s Series, err error) {
	match := spreadCell.FindStringSubmatch(cell)
	if match == nil {
		return nil, fmt.Errorf("measure: cell %q, want a median, the least and the greatest: 3 (1-5)", cell)
	}
	for _, text := range match[1:] {
		n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
		if err != nil {
			return nil, fmt.Errorf("measure: cell %q: %w", cell, err)
		}
		s = append(s, n)
	}
	return s, nil
}
