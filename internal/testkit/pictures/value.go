package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// The key that is drawn: its hits, and the two values in which Redis then keeps
// them, in hexadecimal. A test counts the hits on a server, and compares.
const (
	rootName  = "{ab:16CTp:signup:ip:203.0.113.9}P"
	rootValue = "0270827f26e680cdff7a48001100000003000d00010000cdfeab000001cdff3b61000dcdff53c00010"
	leafName  = rootName + ":492334.1"
	leafValue = "00b4000101e0000202d0000303fc000404ec000505dc00060618000707f8000808e800090a8c000a0c30000b"
)

var drawnHits = []time.Time{
	clock(21, 40, 0),
	clock(22, 3, 0), clock(22, 8, 0), clock(22, 12, 0), clock(22, 17, 0), clock(22, 21, 0), clock(22, 25, 0),
	clock(22, 26, 0), clock(22, 34, 0), clock(22, 38, 0), clock(22, 45, 0), clock(22, 52, 0), clock(22, 57, 0),
	clock(23, 10, 0), clock(23, 10, 0), clock(23, 10, 0), clock(23, 30, 33),
}

func clock(hour, minute, second int) time.Time {
	return time.Date(2026, 3, 1, hour, minute, second, 0, time.UTC)
}

// field is a number of a value, as it is stored.
type field struct {
	hex, colour string
	behind      float64 // distance from the field before
}

// fields reads the numbers of a value one after the other.
type fields struct {
	rest string // in hexadecimal
	read []field
}

// next reads a number of so many bytes. Its box has the colour, and lies behind
// pixels from the box before.
func (f *fields) next(size int, colour string, behind float64) uint64 {
	digits := f.rest[:2*size]
	f.rest = f.rest[2*size:]
	f.read = append(f.read, field{digits, colour, behind})
	n, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// draw draws the boxes of all fields, with digits of a width, and returns the
// middle of each.
func (f *fields) draw(b *bytes.Buffer, y int, digit float64) (middle []float64) {
	const pad, tall = 3, 26
	x := float64(left)
	for _, field := range f.read {
		x += field.behind
		text := digit * float64(len(field.hex))
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="3" fill="none" stroke="%s" stroke-width="1.5"/>`, x, y, text+2*pad, tall, field.colour)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs" font-family="ui-monospace, monospace" font-size="%.1f">%s</text>`+"\n",
			x+pad, y+tall-9, text, digit/0.6, field.hex)
		middle = append(middle, x+pad+text/2)
		x += text + 2*pad
	}
	return middle
}

// sum is a running sum: the hits up to and including the bucket that begins at.
type sum struct {
	at    time.Time
	hits  uint64
	field int // that has at
}

// drawValue draws the hits of a key as a curve of running sums, and under the curve
// the bytes in which Redis holds the sums, read as docs/storage.md tells.
func drawValue(s scheme) ([]byte, error) {
	const (
		perBucket = 8
		bias      = 3600 << 32 // seconds before 1970
		near, far = 4, 14      // distances of fields
	)
	root := &fields{rest: rootValue}
	wide := int(root.next(1, s.faint, 0))
	origin := root.next(6, s.faint, near)
	entry := func(behind float64) (e sum, kind uint64) {
		position := root.next(4, s.ours, behind)
		e.field = len(root.read) - 1
		e.at = time.Unix(int64((origin+position)/perBucket)-bias, 0).UTC()
		e.hits = root.next(wide, s.ours, 0)
		return e, position % perBucket
	}
	newest, _ := entry(near)
	room := root.next(1, s.faint, near)
	others := root.next(3, s.faint, near)
	here, prior, first := root.next(wide, s.faint, near), root.next(wide, s.faint, near), root.next(wide, s.faint, near)
	head := len(root.read)
	var sums []sum // of the root
	var leafEntry sum
	for range others {
		e, kind := entry(far)
		if kind > 0 {
			leafEntry = e
		}
		sums = append(sums, e)
	}
	sums = append(sums, newest)
	stretch := leafEntry.at.Truncate(time.Hour)
	leaf := &fields{rest: leafValue}
	var fine []sum // of the leaf
	for leaf.rest != "" {
		slot := leaf.next(2, s.other, near)
		fine = append(fine, sum{stretch.Add(time.Duration(slot) * time.Second), prior + leaf.next(2, s.other, 0), len(leaf.read) - 2})
	}

	const (
		ground   = 176 // where no hit is
		perHit   = 7
		leafRow  = 232
		rootRow  = 330
		callouts = 374
	)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d 510" font-family="system-ui, sans-serif" font-size="12" fill="%s">`+"\n", width, s.ink)
	fmt.Fprintf(&b, "<title>The running sums of a key with %d hits, and the bytes in which Redis holds them.</title>\n", newest.hits)
	fmt.Fprintf(&b, `<text x="%d" y="26" font-size="17">%d hits of a key, as running sums on Redis: any window is the difference of two</text>`+"\n", left, newest.hits)
	from, to := clock(21, 30, 0), clock(23, 40, 0)
	x := func(t time.Time) float64 { return left + float64(t.Sub(from))/float64(to.Sub(from))*(right-left) }
	y := func(hits uint64) int { return ground - perHit*int(hits) }
	text := func(x float64, y int, anchor, colour, format string, args ...any) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour, fmt.Sprintf(format, args...))
	}

	for hour := from.Truncate(time.Hour).Add(time.Hour); hour.Before(to); hour = hour.Add(time.Hour) {
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="%s" stroke-dasharray="2 4"/>`+"\n", x(hour), ground, y(newest.hits), s.faint)
		text(x(hour), ground+16, "middle", s.faint, "%s", hour.Format("15:04"))
	}
	curve := slices.Concat(sums[:1], fine, sums[1:])
	fmt.Fprintf(&b, `<path d="M%d %d`, left, ground)
	for _, e := range curve {
		fmt.Fprintf(&b, "H%.1fV%d", x(e.at), y(e.hits))
	}
	fmt.Fprintf(&b, `H%d" stroke="%s" stroke-width="2" fill="none"/>`+"\n", right, s.faint)
	for i, e := range curve {
		colour := s.other
		if i == 0 || i > len(fine) {
			colour = s.ours
			text(x(e.at)-8, y(e.hits)-5, "end", s.ink, "%d", e.hits)
		}
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="4" fill="%s"/>`+"\n", x(e.at), y(e.hits), colour)
	}
	// The last hour, as a difference.
	hourAgo := newest.at.Add(-time.Hour)
	i, _ := slices.BinarySearchFunc(curve, hourAgo, func(e sum, t time.Time) int { return e.at.Compare(t) })
	old := curve[i-1].hits
	fmt.Fprintf(&b, `<path d="M%.1f %dv8v-8H%.1fV%d" stroke="%s" stroke-dasharray="2 4" fill="none"/>`+"\n", x(hourAgo), y(old), x(newest.at)+24, y(newest.hits), s.ink)
	text(x(hourAgo), y(old)+21, "middle", s.ink, "%s", hourAgo.Format("15:04:05"))
	text(x(newest.at)+18, y(old)-8, "end", s.ink, "the last hour: %d − (%d + %d) = %d", newest.hits, prior, old-prior, newest.hits-old)

	fmt.Fprintf(&b, `<path d="M%.1f %dL%d %dM%.1f %dL%d %d" stroke="%s" stroke-dasharray="2 4"/>`+"\n",
		x(stretch), ground+22, left, leafRow-18, x(stretch.Add(time.Hour)), ground+22, right, leafRow-18, s.faint)
	at := leaf.draw(&b, leafRow, 6.7)
	for _, e := range fine {
		text((at[e.field]+at[e.field+1])/2, leafRow-6, "middle", s.other, "%s", e.at.Format("15:04"))
	}
	text(left, leafRow+44, "start", s.ink, "the leaf, %s: second, and sum of the hour so far", leafName)

	at = root.draw(&b, rootRow, 7.4)
	text(left, rootRow-22, "start", s.ink, "the root, %s", rootName)
	for _, e := range sums {
		label := e.at.Format("15:04:05")
		if e == leafEntry {
			label = "the leaf, to " + label
			fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="%s" stroke-dasharray="2 4"/>`+"\n", at[e.field], rootRow-18, leafRow+28, s.faint)
		}
		text((at[e.field]+at[e.field+1])/2, rootRow-6, "middle", s.ours, "%s", label)
	}
	notes := []string{
		fmt.Sprintf("%d bytes a sum", wide),
		"origin of all positions",
		"position of the newest entry",
		fmt.Sprintf("%d hits up to the newest entry", newest.hits),
		fmt.Sprintf("room for %d entries at the end", room),
		fmt.Sprintf("%d other entries follow", others),
		fmt.Sprintf("%d before %s", here, newest.at.Truncate(time.Hour).Format("15:04")),
		fmt.Sprintf("%d before %s", prior, stretch.Format("15:04")),
		fmt.Sprintf("%d before the first entry", first),
	}
	for i := range head {
		row := callouts + 15*(head-1-i)
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="%s"/>`+"\n", at[i], rootRow+26, row-10, s.faint)
		text(at[i]-3, row, "start", s.ink, "%s", notes[i])
	}
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes(), nil
}
