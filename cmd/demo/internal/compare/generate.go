package compare

import (
	"cmp"
	_ "embed" // of Source
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// Source is this file: what generated traffic is, for readers of its numbers.
//
//go:embed generate.go
var Source string

// Parameters of generated traffic. The amounts are moderate: a log takes about a
// second in memory, and half a minute on a Redis of the same machine.
const (
	genHits    = 40_000 // by users, in the mean
	genUsers   = 3_000
	genZipf    = 1.1
	genSwing   = 0.8    // how far the rate swings around its mean, by the hour of the day
	genPeak    = 16     // the busiest hour, UTC
	genBursts  = 8_000  // hits of bursts for a limit, unless a single burst has more
	genLargest = 20_000 // hits on one side of a window's edge, at most
	genAttack  = 4_000  // hits of an attacker, at most
	genAtOnce  = 1_000  // hits of an attacker at once, at most
)

// genBegin is a noon, so that a day has a midnight in the middle: the edge of
// aligned windows of a day.
var genBegin = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// Generate makes traffic for trials of limits: users who come by the hour of the
// day, a few much more often than the rest; clients with Max hits on each side of
// the edge of an aligned window; and attackers. Equal seeds and limits make equal
// logs. A log spans a day, or two of the longest windows if longer.
func Generate(seed uint64, limits counter.Limits) (*Log, error) {
	span := dur.Day
	for _, limit := range limits {
		span = max(span, 2*limit.Per)
	}
	g := &generator{rand: rand.New(rand.NewPCG(seed, 0)), span: span}
	g.users()
	for _, limit := range limits {
		g.bursts(limit)
		g.attackers(limit)
	}
	model := fmt.Sprintf("generated traffic, seed %d: %s from %s; %d users, Zipf %.1f, Poisson by the hour of the day, busiest at %d:00; "+
		"for each limit clients that hit Max times on each side of a window's edge, 2 that ask for 5 x the limit, 2 that send Max at once again and again, and 2 that do so half a second too early",
		seed, dur.Format(span), genBegin.Format("2006-01-02 15:04 MST"), genUsers, genZipf, genPeak)
	if slices.ContainsFunc(limits, func(l counter.Limit) bool { return l.Max > genAtOnce }) {
		model += fmt.Sprintf("; of a large Max no more than %d at an edge and %d at once", genLargest, genAtOnce)
	}
	return g.log(model)
}

type generated struct {
	at  time.Time
	who string
}

type generator struct {
	rand *rand.Rand
	span time.Duration
	hits []generated
}

// hit adds a hit at a time after the beginning, unless the time is beyond the
// end.
func (g *generator) hit(after time.Duration, who string) {
	if after >= 0 && after < g.span {
		g.hits = append(g.hits, generated{genBegin.Add(after.Truncate(time.Microsecond)), who})
	}
}

// log is a log of all hits, in the order of time.
func (g *generator) log(name string) (*Log, error) {
	slices.SortFunc(g.hits, func(a, b generated) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.who, b.who)) })
	b := newLog(name)
	for _, h := range g.hits {
		if err := b.add(h.at, counter.Key{Event: "signup", Feature: h.who}); err != nil {
			return nil, err
		}
	}
	return b.finish()
}

// upTo is a random duration below d.
func (g *generator) upTo(d time.Duration) time.Duration {
	return time.Duration(g.rand.Int64N(max(1, int64(d))))
}

// users adds a Poisson process with a rate by the hour: a process at the highest
// rate, with a part of the hits left out.
func (g *generator) users() {
	who := rand.NewZipf(g.rand, genZipf, 1, genUsers-1)
	highest := genHits * (1 + genSwing) / g.span.Hours()
	for hours := g.rand.ExpFloat64() / highest; hours < g.span.Hours(); hours += g.rand.ExpFloat64() / highest {
		at := time.Duration(hours * float64(time.Hour))
		clock := genBegin.Add(at).Sub(genBegin.Truncate(dur.Day)).Hours()
		if g.rand.Float64()*(1+genSwing) < 1+genSwing*math.Cos(2*math.Pi*(clock-genPeak)/24) {
			g.hit(at, fmt.Sprintf("user:%d", who.Uint64()))
		}
	}
}

// at adds size hits of a client, a microsecond apart.
func (g *generator) at(after time.Duration, size int64, who string) {
	for i := range time.Duration(size) {
		g.hit(after+i*time.Microsecond, who)
	}
}

// bursts adds separate clients, each with Max hits shortly before the edge of an
// aligned window and Max hits shortly after.
func (g *generator) bursts(limit counter.Limit) {
	size := min(limit.Max, genLargest)
	first := time.Unix(0, tiers.Index(genBegin.UnixNano(), limit.Per)*int64(limit.Per))
	edges := int64((genBegin.Add(g.span-1).Sub(first) / limit.Per))
	for i := range min(20, max(1, genBursts/(2*size))) {
		who := fmt.Sprintf("edge-of-%s:%d", dur.Format(limit.Per), i)
		edge := first.Add(time.Duration(1+g.rand.Int64N(edges)) * limit.Per).Sub(genBegin)
		for range size {
			g.hit(edge-1000-g.upTo(limit.Per/50), who)
			g.hit(edge+g.upTo(limit.Per/50), who)
		}
	}
}

// attackers adds six clients: two at a steady rate of five times the limit; two
// with Max hits at once, repeated before Per has passed; and two with Max hits
// late in a second, repeated half a second too early.
func (g *generator) attackers(limit counter.Limit) {
	size, early := min(limit.Max, genAtOnce), min(time.Second/2, limit.Per/4)
	name := func(kind string, i int) string { return fmt.Sprintf("%s-%s:%d", kind, limit, i) }
	for i := range 2 {
		at, step := g.upTo(g.span/2), limit.Per/time.Duration(5*limit.Max)
		for range genAttack {
			g.hit(at, name("flood", i))
			at += step/2 + g.upTo(step)
		}
	}
	for i := range 2 {
		at := g.upTo(g.span / 4)
		for range genAttack / size {
			g.at(at, size, name("pulse", i))
			at += limit.Per/2 + g.upTo(limit.Per/2)
		}
	}
	for i := range 2 {
		at := g.upTo(g.span-limit.Per).Truncate(time.Second) + time.Second - early/4
		g.at(at, size, name("early", i))
		g.at(at+limit.Per-early, size, name("early", i))
	}
}
