// Program pictures draws the pictures of the documentation, for light pages and
// for dark pages: "make pictures".
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("pictures: want one argument, the directory to write to")
	}
	for _, s := range schemes {
		for _, p := range pictures {
			drawn, err := p.draw(s)
			if err != nil {
				log.Fatalf("pictures: %s: %v", p.name, err)
			}
			if err := os.WriteFile(filepath.Join(os.Args[1], p.file(s)), drawn, 0o644); err != nil {
				log.Fatal("pictures: ", err)
			}
		}
	}
}

// picture draws in the colours of a scheme.
type picture struct {
	name string
	draw func(scheme) ([]byte, error)
}

func (p picture) file(s scheme) string { return p.name + "-" + s.name + ".svg" }

var pictures = []picture{{"rods", drawRods}, {"boundary", drawBoundary}, {"value", drawValue}}

// scheme has the colours of a picture: those of the pages of the program, in which
// ours is the colour of abacus, and other of the limiters beside.
type scheme struct{ name, ink, faint, bead, ours, other string }

var schemes = []scheme{
	{"light", "#1f2328", "#6e7781", "#c9b18a", "#8a2a8c", "#0a63b0"},
	{"dark", "#f0f6fc", "#8b949e", "#5d5340", "#e08fe0", "#62b0f5"},
}

// now is the end of the window that is drawn.
var now = time.Date(2026, 3, 2, 23, 30, 33, 0, time.UTC)

// Lengths of the picture, in pixels.
const (
	left, right = 92, 868 // ends of a rod
	width       = 900
	top         = 64 // of the first rod
	apart       = 92 // rods, one from the next
)

// drawRods draws the buckets that a window of a day reads: hours, minutes of the
// oldest hour, and seconds of the oldest minute. Lines lead from a bucket to its
// finer buckets.
func drawRods(s scheme) ([]byte, error) {
	cover, err := tiers.Default.Cover(now, 24*time.Hour, 0)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d 310" font-family="system-ui, sans-serif" font-size="14" fill="%s">`+"\n", width, s.ink)
	fmt.Fprintf(&b, "<title>A window of 24 hours is the sum of %d buckets.</title>\n", cover.Reads())
	fmt.Fprintf(&b, `<text x="%d" y="26" font-size="17">The last 24 hours, at %s: %d counters are read`, left, now.Format("15:04:05"), cover.Reads())
	fmt.Fprintf(&b, `<tspan fill="%s"> of 86,400 seconds</tspan></text>`+"\n", s.faint)
	oldest := now.Add(-24 * time.Hour)
	var from time.Time // of the rod above
	for i := range 3 {
		rod := rods[i]
		first := oldest.Truncate(rod.span)
		y := top + i*apart
		step := float64(right-left) / float64(rod.n)
		at := func(t time.Time) float64 { return left + float64(t.Sub(first))/float64(rod.width)*step }
		if i > 0 {
			above := rods[i-1]
			x := left + float64(first.Sub(from))/float64(above.width)*float64(right-left)/float64(above.n)
			next := x + float64(right-left)/float64(above.n)
			fmt.Fprintf(&b, `<path d="M%.1f %dL%d %dM%.1f %dL%d %d" stroke="%s" stroke-dasharray="2 4" fill="none"/>`+"\n", x, y-apart+27, left, y-4, next, y-apart+27, right, y-4, s.faint)
		}
		read := 0
		fmt.Fprintf(&b, `<path d="M%d %dH%d" stroke="%s" stroke-width="2"/>`+"\n", left-8, y+12, right+8, s.faint)
		for k := range rod.n {
			start := first.Add(time.Duration(k) * rod.width)
			fill := s.bead
			if in(cover, rod.width, start) {
				fill = s.ours
				read++
			}
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="24" rx="%.1f" fill="%s"/>`+"\n", at(start)+1, y, step-2, min(step/2-1, 7), fill)
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-18, y+17, rod.name)
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="12" fill="%s">%s</text>`+"\n", left+6, y+43, s.faint, first.Format(rod.clock))
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="12" fill="%s" text-anchor="end">%s</text>`+"\n", right-6, y+43, s.faint, first.Add(time.Duration(rod.n)*rod.width).Format(rod.clock))
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-size="12" text-anchor="middle">%d read</text>`+"\n", (left+right)/2, y+43, read)
		from = first
	}
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes(), nil
}

// rods are the parts of the picture, from above.
var rods = []struct {
	name  string
	width time.Duration // of a bucket
	n     int           // buckets
	span  time.Duration // the rod begins at a multiple of span
	clock string        // layout of its times
}{
	{"hours", time.Hour, 25, time.Hour, "Mon 15:04"},
	{"minutes", time.Minute, 60, time.Hour, "15:04"},
	{"seconds", time.Second, 60, time.Minute, "15:04:05"},
}

// in reports whether cover reads the bucket of a width that begins at start.
func in(cover tiers.Cover, width time.Duration, start time.Time) bool {
	for _, run := range cover {
		if run.Width == width && !start.Before(run.Start()) && start.Before(run.End()) {
			return true
		}
	}
	return false
}
