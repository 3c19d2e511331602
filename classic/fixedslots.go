package classic

import (
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// FixedSlots is a [FixedWindow] that stores the number of a window modulo 3 in
// the name of its counter, so a key has at most three counters, however short
// the windows and however long the counters are kept.
//
// Three, not two: a caller whose clock is a little behind is still in the last
// window while a second caller is in the current window and a third, whose
// clock is ahead, in the next. With two slots the last and the next window
// would share a counter.
//
// A slot is used again after three windows, and must not begin with its former
// count. The time to live cannot see to that: renewed with every hit, the time
// to live keeps the counter alive for ever; after a crash between counting and
// setting the time to live, the counter never ends; and by the server's clock,
// a log that is replayed faster than real time, or a clock that is set forward,
// finds the old count. Here the window's number stands next to the count, and
// the count of an older window is zero. The count of a newer window stays: the
// caller's clock is behind by three windows, and the caller counts in the newer
// window. Otherwise two clocks could reset the slot in turns, and admit without
// end. The time to live only clears away keys without calls.
//
// Guarantee, source and use: as of [FixedWindow]; the ring of slots is common
// practice with no source to name.
//
// Cost: 1 read, and if admitted 1 write; 1 round trip, 1 script. Three states
// of some 100 bytes a key.
type FixedSlots struct{ engine[slot] }

// NewFixedSlots makes a FixedSlots. An error names the value that is out of bounds.
func NewFixedSlots(limit counter.Limit, store *Store) (*FixedSlots, error) {
	if err := checkLimit(limit, store); err != nil {
		return nil, err
	}
	l := &FixedSlots{}
	l.start("fixed-slots", limit, store, limit.Max, micros(limit.Per), &fixedSlots{e: &l.engine, per: limit.Per / 1000})
	return l, nil
}

var _ Measured = (*FixedSlots)(nil)

//go:embed slot.lua
var slotLua string

var slotScript = newScript(slotLua)

// slot is a window, by its number or its first instant, and the hits in the window.
type slot struct{ window, hits int64 }

const slots = 3

// count counts c in the window of s, unless the window is older than oldest: then
// in a new window.
func (s *slot) count(c *call, max, window, oldest int64, known bool) {
	c.cost.Reads++
	now := slot{window: window}
	if known && s.window >= oldest {
		now = *s
	}
	if c.allowed = now.hits <= max-c.n; c.allowed {
		now.hits += c.n
		*s = now
		c.cost.Writes++
	}
	c.facts[0], c.facts[1] = now.window, now.hits
}

type fixedSlots struct {
	e   *engine[slot]
	per time.Duration // in microseconds
}

var _ rule[slot] = (*fixedSlots)(nil)

func (r *fixedSlots) step(s *slot, known bool, c *call) {
	window := tiers.Index(c.now, r.per)
	s.count(c, r.e.limit.Max, window, window, known)
}

func (r *fixedSlots) remote(ctx context.Context, to *remote, name string, c *call) error {
	window := tiers.Index(c.now, r.per)
	return to.run(ctx, slotScript, name, c, c.n, r.e.limit.Max, window, window, r.e.ttlMillis())
}

func (r *fixedSlots) verdict(c *call) (remaining, retryAfter, resetAfter int64) {
	window, count := c.facts[0], c.facts[1]
	end := (window+1)*int64(r.per) - c.now
	if count > 0 {
		resetAfter = end
	}
	return r.e.limit.Max - count, end, resetAfter
}

func (r *fixedSlots) name(base string, now int64) string {
	return slotName(base, tiers.Index(now, r.per))
}

// slotName is the name of a window: its number modulo 3, also before 1970.
func slotName(base string, window int64) string {
	return base + strconv.FormatInt(((window%slots)+slots)%slots, 10)
}

func (r *fixedSlots) names(base string, _ int64) (names []string) {
	for w := range int64(slots) {
		names = append(names, slotName(base, w))
	}
	return names
}

func (*fixedSlots) bytes(*slot) int64 { return 0 }
