package classic

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/classic/internal/server"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/tiers"
)

// TextbookTiers counts every hit in its second, its minute and its hour, and a
// sliding window as textbooks draw the window: whole hours in the middle, and
// minutes and seconds at both edges. Take first checks, then adds. Packages
// tiers and counter are the library's own use of the same tiers.
//
// Guarantee: with one caller at a time, at most Max in a window of Per less a
// second. In a true window of Per 2*Max: the cover begins with a whole second
// and so drops up to one second at its left edge, in which Max may have been.
// On a server, callers who check before the first of them adds are all admitted:
// too many by the hits under way, less one call, and without a bound if calls
// under way have no bound. In memory check and addition are one step. The right
// edge ends with the caller's own second: a caller whose clock is behind does
// not see later hits, so clocks that are apart admit more.
//
// Cost: 141 reads for a day on average over all times of day, 142 at most. On
// Redis 2 round trips, 1 if denied: MGET, then a pipeline of 6 writes, INCRBY and
// PEXPIRE. On memcached, where these tiers come from, 1 if denied: a multi-get,
// which the server counts as 141 gets. If admitted 3 more, an incr for each tier,
// up to 6 in a new second, minute and hour: each incr that finds no item is
// followed by an add. Neither is a transaction; after a failure in the middle the
// tiers differ until they expire. Memory: up to three counters for each admitted
// hit, of some 100 bytes on a server and 50 in memory, and for a key with a hit in
// every second of a day some 88,000 counters.
//
// RetryAfter is the time until enough hits have certainly left. Of a minute or
// an hour the cover knows only the sum, so RetryAfter may be late by as much: a
// caller who comes earlier may be admitted already. ResetAfter likewise.
//
// Source: the usual answer to the question how to count "in the last 24 hours"
// without a log, on a cache that can add to a counter and let it expire, and no
// more; with no publication to name. docs/design.md has its arithmetic.
//
// Prefer package counter, which on the same counters holds Max in every true
// window, in one round trip and fewer reads.
type TextbookTiers struct{ engine[buckets] }

// NewTextbookTiers makes a TextbookTiers. An error names the value that is out
// of bounds: also a window that is not in whole seconds.
func NewTextbookTiers(limit counter.Limit, store *Store) (*TextbookTiers, error) {
	if err := checkBounds(limit, store); err != nil {
		return nil, err
	}
	if limit.Per%time.Second != 0 {
		return nil, fmt.Errorf("classic: limit %s: Per is %s, want whole seconds", limit, dur.Format(limit.Per))
	}
	keep := max(limit.Per, time.Hour)
	ladder, err := tiers.New(tiers.Tier{Width: time.Second, Keep: keep}, tiers.Tier{Width: time.Minute, Keep: keep}, tiers.Tier{Width: time.Hour, Keep: keep})
	if err != nil {
		return nil, fmt.Errorf("classic: limit %s: %w", limit, err)
	}
	l := &TextbookTiers{}
	l.start("textbook-tiers", limit, store, limit.Max, micros(limit.Per+time.Hour), &textbookTiers{&l.engine, ladder, limit.Per})
	return l, nil
}

var _ Measured = (*TextbookTiers)(nil)

// buckets are the buckets of a key in memory; made has the numbers of each
// tier's buckets in the order of their making.
type buckets struct {
	counts map[tiers.Bucket]int64
	made   [3][]int64
}

type textbookTiers struct {
	e      *engine[buckets]
	ladder tiers.Ladder
	per    time.Duration
}

var _ rule[buckets] = (*textbookTiers)(nil)

func (r *textbookTiers) name(base string, _ int64) string { return base }

func (r *textbookTiers) step(s *buckets, known bool, c *call) {
	if !known {
		s.counts = map[tiers.Bucket]int64{}
	}
	cover := r.cover(c.now)
	counts := make([]int64, 0, cover.Reads())
	for _, run := range cover {
		for i := range run.N {
			counts = append(counts, s.counts[tiers.Bucket{Width: run.Width, Index: run.First + i}])
		}
	}
	c.cost.Reads += cover.Reads()
	r.decide(cover, counts, c)
	if !c.allowed {
		return
	}
	for tier, b := range r.ladder.Buckets(instant(c.now)) {
		made := &s.made[tier]
		for len(*made) > 0 && r.life(tiers.Bucket{Width: b.Width, Index: (*made)[0]}, c.now) < 0 {
			delete(s.counts, tiers.Bucket{Width: b.Width, Index: (*made)[0]})
			*made = (*made)[1:]
		}
		if _, is := s.counts[b]; !is {
			*made = append(*made, b.Index)
		}
		s.counts[b] += c.n
		c.cost.Writes++
	}
}

// life is the time after now in which b can matter: until Per after its end,
// and Grace.
func (r *textbookTiers) life(b tiers.Bucket, now int64) int64 {
	return (b.Index+1)*micros(b.Width) - now + micros(r.per) + microsUp(r.e.store.cfg.Grace)
}

func (r *textbookTiers) remote(ctx context.Context, _ *remote, base string, c *call) error {
	ctx, cancel := loan.WithTimeout(ctx, r.e.store.cfg.Timeout)
	defer cancel()
	cover := r.cover(c.now)
	var names []string
	for _, run := range cover {
		for i := range run.N {
			names = append(names, bucketName(base, tiers.Bucket{Width: run.Width, Index: run.First + i}))
		}
	}
	on := r.e.store.server
	counts, err := on.Counts(ctx, names, &c.cost)
	if err != nil {
		return err
	}
	if r.decide(cover, counts, c); !c.allowed {
		return nil
	}
	var to []server.Counter
	for _, b := range r.ladder.Buckets(instant(c.now)) {
		to = append(to, server.Counter{Name: bucketName(base, b), Life: duration(r.life(b, c.now))})
	}
	return on.Add(ctx, c.n, to, &c.cost)
}

// decide fills c in from the counts of a cover, oldest first.
func (r *textbookTiers) decide(cover tiers.Cover, counts []int64, c *call) {
	var count, left int64
	for _, n := range counts {
		count += n
	}
	c.allowed = count <= r.e.limit.Max-c.n
	leave := count + c.n - r.e.limit.Max
	i := 0
	for _, run := range cover {
		for j := range run.N {
			n := counts[i]
			i++
			if n == 0 {
				continue
			}
			end := (run.First + j + 1) * micros(run.Width)
			if left < leave && left+n >= leave {
				c.facts[1] = end
			}
			left, c.facts[2] = left+n, end
		}
	}
	if c.allowed {
		count += c.n
		c.facts[2] = (tiers.Index(c.now, 1e6) + 1) * 1e6
	}
	c.facts[0] = count
}

func (r *textbookTiers) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	// A bucket leaves the cover when its last second is Per old.
	out := micros(r.per-time.Second) - c.now
	if c.facts[0] > 0 {
		resetAfter = c.facts[2] + out
	}
	return r.e.limit.Max - c.facts[0], c.facts[1] + out, resetAfter
}

// cover is the cover of the window that ends now. Limit and clock were checked.
func (r *textbookTiers) cover(now int64) tiers.Cover {
	cover, _ := TextbookCover(r.ladder, instant(now), r.per)
	return cover
}

func instant(us int64) time.Time { return time.Unix(0, us*1000) }

// bucketName is base and the bucket, such as s1384000000.
func bucketName(base string, b tiers.Bucket) string {
	unit := "s"
	switch b.Width {
	case time.Minute:
		unit = "m"
	case time.Hour:
		unit = "h"
	}
	return base + unit + strconv.FormatInt(b.Index, 10)
}

// names lists all names that can live: tens of thousands for a day. In memory
// all buckets are in a single state.
func (r *textbookTiers) names(base string, now int64) []string {
	if r.e.table != nil {
		return []string{base}
	}
	var names []string
	for _, tier := range r.ladder.Tiers() {
		width := time.Duration(micros(tier.Width))
		for i := tiers.Index(now-micros(r.per)-microsUp(r.e.store.cfg.Grace), width); i <= tiers.Index(now, width); i++ {
			names = append(names, bucketName(base, tiers.Bucket{Width: tier.Width, Index: i}))
		}
	}
	return names
}

// bytes estimates a bucket as its key and count in the map, two thirds as much
// again for empty slots of the map, and its number in made.
func (*textbookTiers) bytes(s *buckets) int64 {
	n := 150 + 40*int64(len(s.counts))
	for _, made := range s.made {
		n += 8 * int64(cap(made))
	}
	return n
}
