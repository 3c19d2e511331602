package compare

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// grownTo are the numbers of hits of the keys that are weighed for a Growth: on a server
// the first ten, since each hit is a round trip.
var grownTo = []int64{10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000}

// burst is the part of a window in which all hits of a burst are.
const burst = 50

// parts are the parts of a window that have all hits of a key: the whole, and a burst.
var parts = []time.Duration{1, burst}

// grows reports whether a candidate is weighed with all hits of a key in a part. There is no exact log on a store that cannot have one.
func (c *Comparison) grows(of candidate, part time.Duration) bool {
	return of.name == "abacus "+tiers.Default.String() ||
		part != burst && (of.source == "abacus" || of.name == exactLog && c.cfg.Store.Memcached == nil)
}

// growth weighs keys with ever more hits in a window, under a limit that admits them
// all. The result is nil if the server does not report its memory.
func (c *Comparison) growth(ctx context.Context, r round) (*Growth, error) {
	g, limit := &Growth{Hits: c.sizes}, r.limit
	limit.Max = slices.Max(g.Hits)
	for _, part := range parts {
		log, err := growing(g.Hits, limit.Per/part)
		if err != nil {
			return nil, err
		}
		for _, candidate := range r.candidates {
			if !c.grows(candidate, part) {
				continue
			}
			t := &trial{c: c, log: log, limit: limit, sample: log.sample(len(log.keys)), decided: make([]uint32, log.Events)}
			a, err := t.run(ctx, 0, candidate)
			if err != nil || a.BytesPerKey == 0 {
				return nil, err
			}
			line := GrowthLine{a.Name, a.Source, a.Default, part == burst, make([]int64, len(g.Hits))}
			for key, bytes := range t.weighed {
				line.Bytes[slices.Index(g.Hits, int64(len(log.of(key))))] = bytes
			}
			g.Lines = append(g.Lines, line)
		}
	}
	return g, nil
}

// growing is a log of a key for each of sizes, with as many hits at random instants of
// span.
func growing(sizes []int64, span time.Duration) (*Log, error) {
	g := &generator{rand: rand.New(rand.NewPCG(1, 0)), span: span}
	for _, n := range sizes {
		for range n {
			g.hit(g.upTo(span), strconv.FormatInt(n, 10))
		}
	}
	return g.log("keys that grow")
}
