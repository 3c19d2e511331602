package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/counter"
)

// Times and sizes of the picture of a boundary.
const (
	step   = time.Minute
	spell  = 4 * time.Hour // is drawn
	most   = 10            // of the limit
	height = 190           // of 2 x most
	floor  = 270           // where 0 is
)

var drawFrom = time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC)

// bursts are the times at which a caller wants most hits at once: on the two sides
// of the end of an aligned hour, and later.
var bursts = []time.Time{drawFrom.Add(80 * time.Minute), drawFrom.Add(100 * time.Minute), drawFrom.Add(200 * time.Minute)}

// drawBoundary draws the number of hits that the last hour has, minute by minute,
// of those that each limiter has admitted.
func drawBoundary(s scheme) ([]byte, error) {
	limit := counter.Limit{Max: most, Per: time.Hour}
	var now time.Time
	clock := func() time.Time { return now }
	c, err := counter.New(memory.New(memory.Config{}), counter.Config{Now: clock})
	if err != nil {
		return nil, err
	}
	store, err := classic.Memory(classic.Config{Now: clock})
	if err != nil {
		return nil, err
	}
	fixed, err := classic.NewFixedWindow(limit, store)
	if err != nil {
		return nil, err
	}
	key := counter.Key{Event: "signup", Feature: "ip:192.0.2.1"}
	limiters := []struct {
		name, colour string
		y            int // of the name
		take         func(context.Context) (counter.Verdict, error)
		admitted     []time.Time
	}{
		{name: "fixed window", colour: s.other, y: 58, take: func(ctx context.Context) (counter.Verdict, error) { return fixed.Take(ctx, key, 1) }},
		{name: "abacus", colour: s.ours, y: floor - height/2 + 22, take: func(ctx context.Context) (counter.Verdict, error) {
			return c.Take(ctx, key, 1, counter.Limits{limit})
		}},
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d 320" font-family="system-ui, sans-serif" font-size="14" fill="%s">`+"\n", width, s.ink)
	fmt.Fprintf(&b, "<title>Hits that two limiters have admitted in the last hour, under a limit of %s.</title>\n", limit)
	fmt.Fprintf(&b, `<text x="%d" y="26" font-size="17">Admitted in the last hour, under %s</text>`+"\n", left, limit)
	at := func(t time.Time) float64 {
		return left + float64(t.Sub(drawFrom))/float64(spell)*float64(right-left)
	}
	for n := 0; n <= 2*most; n += most {
		y := floor - n*height/(2*most)
		fmt.Fprintf(&b, `<path d="M%d %dH%d" stroke="%s" stroke-dasharray="2 4"/><text x="%d" y="%d" text-anchor="end">%d</text>`+"\n", left, y, right, s.faint, left-10, y+5, n)
	}
	for hour := drawFrom.Truncate(time.Hour).Add(time.Hour); hour.Before(drawFrom.Add(spell)); hour = hour.Add(time.Hour) {
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="%s" stroke-dasharray="2 4"/><text x="%.1f" y="%d" font-size="12" text-anchor="middle" fill="%s">%s</text>`+"\n",
			at(hour), floor-height, floor+6, s.faint, at(hour), floor+22, s.faint, hour.Format("15:04"))
	}
	for _, burst := range bursts {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" font-size="12" text-anchor="middle">%d hits</text><path d="M%.1f %dv-8" stroke="%s" stroke-width="2"/>`+"\n", at(burst), floor+42, most, at(burst), floor+30, s.ink)
	}
	for i := range limiters {
		l := &limiters[i]
		fmt.Fprintf(&b, `<path d="M%d %d`, left, floor)
		for now = drawFrom; now.Before(drawFrom.Add(spell)); now = now.Add(step) {
			for _, burst := range bursts {
				for range most {
					if !now.Equal(burst) {
						break
					}
					v, err := l.take(context.Background())
					if err != nil {
						return nil, err
					}
					if v.Allowed {
						l.admitted = append(l.admitted, now)
					}
				}
			}
			for len(l.admitted) > 0 && now.Sub(l.admitted[0]) > time.Hour {
				l.admitted = l.admitted[1:]
			}
			fmt.Fprintf(&b, "H%.1fV%d", at(now), floor-len(l.admitted)*height/(2*most))
		}
		fmt.Fprintf(&b, `" stroke="%s" stroke-width="3" fill="none"/>`+"\n", l.colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="%s">%s</text>`+"\n", at(bursts[1])+12, l.y+14, l.colour, l.name)
	}
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes(), nil
}
