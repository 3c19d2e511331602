package classic

import (
	"context"
	_ "embed"
	"slices"
	"sort"

	"github.com/abacus-go/abacus/counter"
)

// SlidingLog keeps the instant of every admitted hit, and counts the hits of
// the last Per. SlidingLog is exact.
//
// Guarantee: at most Max in every window of length Per, both ends included: a
// hit of exactly Per ago still counts. The guarantee is for the callers' own
// instants in whatever order they come, while their clocks agree within Grace:
// hits of a clock ahead count too, and Grace keeps hits for a clock behind.
//
// Cost, denied: up to 4 reads, no write; a denied request is not logged.
// Admitted: 3 reads, and 3 writes, 1 more for each 500 of n beyond the first;
// to remove many old hits takes longer. 1 round trip, 1 script. Memory grows
// with Max: in memory 16 to 32 bytes for each instant with hits; in a sorted
// set 30 bytes for each hit up to 128 hits and 130 beyond, n hits for a call of
// n. Never give an attacker a large Max here.
//
// A call can take at most 10,000 hits. More is an error.
//
// Source: rolling-rate-limiter, Peter Hayes, ClassDojo's engineering blog,
// 2015: remove, count, add and expire on a sorted set, in a transaction. There
// denied requests are added too, so a client that keeps asking is not admitted
// again.
//
// Prefer SlidingLog where Max is small and each hit matters, such as password
// resets; and as the truth with which other limiters are compared.
type SlidingLog struct{ engine[hits] }

// maxLogged is the largest n of a call: a script that adds more members would
// keep a server from all its other clients.
const maxLogged = 10_000

// NewSlidingLog makes a SlidingLog. An error names the value that is out of bounds.
func NewSlidingLog(limit counter.Limit, store *Store) (*SlidingLog, error) {
	if err := checkLimit(limit, store); err != nil {
		return nil, err
	}
	l := &SlidingLog{}
	l.start("sliding-log", limit, store, limit.Max, micros(limit.Per), &slidingLog{e: &l.engine, per: micros(limit.Per)})
	l.large = maxLogged
	return l, nil
}

var _ Measured = (*SlidingLog)(nil)

//go:embed slidinglog.lua
var slidingLogLua string

var slidingLogScript = newScript(slidingLogLua)

// hits are the hits of a key, by instant.
type hits struct {
	list []hit // ascending, each instant once
	gone int64 // the weight of all dropped hits
}

// hit is an instant; sum is the weight of all hits ever, up to and including
// the instant.
type hit struct{ at, sum int64 }

// before is the index of the first instant at t or later, and the weight of all
// earlier hits.
func (h *hits) before(t int64) (i int, sum int64) {
	i = sort.Search(len(h.list), func(i int) bool { return h.list[i].at >= t })
	return i, h.upTo(i - 1)
}

func (h *hits) upTo(i int) int64 {
	if i < 0 {
		return h.gone
	}
	return h.list[i].sum
}

// add adds n hits at t. Hits of a clock that is behind move later hits.
func (h *hits) add(t, n int64) {
	i, sum := h.before(t)
	if i == len(h.list) || h.list[i].at != t {
		h.list = slices.Insert(h.list, i, hit{t, sum})
	}
	for ; i < len(h.list); i++ {
		h.list[i].sum += n
	}
}

// drop drops the hits before t. The list reuses their memory when growing.
func (h *hits) drop(t int64) {
	i, gone := h.before(t)
	h.list, h.gone = h.list[i:], gone
}

type slidingLog struct {
	e   *engine[hits]
	per int64
	single[hits]
}

var _ rule[hits] = (*slidingLog)(nil)

func (r *slidingLog) step(h *hits, _ bool, c *call) {
	c.cost.Reads++
	_, before := h.before(c.now - r.per)
	count := h.upTo(len(h.list)-1) - before
	switch c.allowed = count <= r.e.limit.Max-c.n; {
	case c.allowed:
		c.cost.Writes++
		h.drop(c.now - r.e.ttl)
		h.add(c.now, c.n)
		count += c.n
	case c.n <= r.e.limit.Max:
		leave := before + count + c.n - r.e.limit.Max
		last := sort.Search(len(h.list), func(i int) bool { return h.list[i].sum >= leave })
		c.facts[1] = h.list[last].at
	}
	c.facts[0] = count
	if count > 0 {
		c.facts[2] = h.list[len(h.list)-1].at
	}
}

func (r *slidingLog) remote(ctx context.Context, to *remote, name string, c *call) error {
	return to.run(ctx, slidingLogScript, name, c, c.n, r.e.limit.Max, c.now, c.now-r.per, c.now-r.e.ttl, r.e.ttlMillis())
}

func (r *slidingLog) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	count, leaves, newest := c.facts[0], c.facts[1], c.facts[2]
	if count > 0 {
		resetAfter = newest + r.per + 1 - c.now
	}
	return r.e.limit.Max - count, leaves + r.per + 1 - c.now, resetAfter
}

func (*slidingLog) bytes(h *hits) int64 { return 16 * int64(cap(h.list)) }
