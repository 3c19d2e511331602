package counter

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

// denials is the memory of recent denials in this process, for a store over a
// network. The memory serves four purposes:
//
//   - A call equal to a denied call is denied without traffic, for at most a
//     second and not beyond its RetryAfter. Until then only a Refund or a Forget
//     can lower the counts, and those of this process clear the memory. Only
//     reads are remembered: the count of a ticket includes hits of racing calls
//     that are about to be taken back.
//   - On a recently denied key a call reads before adding. Otherwise the tickets
//     of a refused crowd would inflate the count for everybody, and each attempt
//     of an attacker would leave an empty bucket behind.
//   - While the store does not answer, a denial of a key counts until its
//     RetryAfter.
//   - On a contended key, where calls of other callers were seen in flight, the
//     counts are not believed for a moment.
//
// The memory is bounded. When full, an arbitrary record makes room: the loss
// costs traffic and nothing else. Times are in nanoseconds since the Unix epoch.
// The nil memory remembers nothing.
type denials struct {
	used  atomic.Bool // anything is remembered
	mu    sync.Mutex
	calls map[string]denial   // by name, see appendName
	keys  map[string]knownKey // by stored key
	seq   int64               // counts the changes of the memory
	lost  int64               // the last change of a key that had to make room
	name  []byte              // a buffer
}

const (
	maxDenials = 1 << 16 // calls, and keys
	maxRecall  = time.Second
)

// denial is a denial of a call, or of a key by itself.
type denial struct {
	at, until int64            // the label of the denied call, and the end of the denial, unless hits are given back
	seq       int64            // denials.seq then
	n         int64            // of a key by itself: the n that was denied
	windows   []backend.Window // the limits of the denied call, with the counts found
}

// knownKey has what the process knows of a key.
type knownKey struct {
	readFirstUntil int64  // calls before this time read first
	contendedUntil int64  // the key counts as contended before this time
	changed        int64  // denials.seq when the counts of the key last changed otherwise than by aging
	denied         denial // zero: the key may have room
}

func newDenials() *denials { return &denials{calls: map[string]denial{}, keys: map[string]knownKey{}} }

// Recall reports whether a call equal to this call is remembered as denied, and
// fills in the counts found then.
func (d *denials) Recall(c *ticket.Call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.calls) == 0 {
		return false
	}
	d.name = appendName(d.name[:0], c)
	r, now := d.calls[string(d.name)], c.Label()
	// A clock that was set back must not make a second last for hours.
	if now < r.at || now >= r.until {
		return false
	}
	for i := range c.Keys {
		if key := &c.Keys[i]; !key.Soft && max(d.lost, d.keys[string(key.Key)].changed) > r.seq {
			return false
		}
	}
	for i := range c.Keys {
		if key := &c.Keys[i]; !key.Soft {
			r.windows = r.windows[copy(key.Windows, r.windows):]
		}
	}
	return true
}

// lastDenial reports whether a key is known to have no room for as many hits under
// limits as high, and fills in the counts found then. N becomes the n that was
// denied.
func (d *denials) lastDenial(c *ticket.Call) (denied bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := c.Label()
	for i := range c.Keys {
		key := &c.Keys[i]
		r := d.keys[string(key.Key)].denied
		// A clock that was set back must not make a denial last longer.
		if !key.Soft && now < r.until && now >= r.at-int64(maxRecall) && r.covers(key, now) {
			copy(key.Windows, r.windows)
			key.N, denied = r.n, true
		}
	}
	return denied
}

// covers reports whether the denial of a key is a denial of this call for the key
// too: for as many hits or more, under limits as high or lower.
func (r *denial) covers(key *backend.TakeKey, now int64) bool {
	if key.N < r.n || len(key.Windows) != len(r.windows) {
		return false
	}
	for i := range r.windows {
		w, was := &key.Windows[i], &r.windows[i]
		if w.Period != was.Period || lengthOf(w, now) != lengthOf(was, r.at) || w.Max > was.Max {
			return false
		}
	}
	return true
}

// lengthOf is a number that is the same for all calls with the window of a limit: the
// reach, or the start of the period.
func lengthOf(w *backend.Window, label int64) int64 {
	if w.Period.IsZero() {
		return int64(w.Reach)
	}
	return label - int64(w.Reach)
}

// readFirst reports whether a call should read before adding.
func (d *denials) readFirst(c *ticket.Call) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(c.Keys, func(key backend.TakeKey) bool {
		return !key.Soft && ticket.Bounded(&key) && c.Label() < d.keys[string(key.Key)].readFirstUntil
	})
}

// Record remembers the answer to a call. A denial by counts that were read, or that
// an atomic step of the store has found, is remembered until the call would be
// admitted, by the clock of this process: RetryAfter is longer by Skew, for callers
// whose clocks are behind, and would deny wrongly here. contended says that calls of
// others were seen in flight.
func (d *denials) Record(c *ticket.Call, allowed, read, contended bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq++
	now := c.Label()
	call := denial{at: now, until: now, seq: d.seq}
	for i := range c.Keys {
		key := &c.Keys[i]
		if key.Soft {
			continue
		}
		if read && !allowed {
			call.windows = append(call.windows, key.Windows...)
		}
		known, there := d.keys[string(key.Key)]
		if !ticket.Bounded(key) || allowed && !there && !contended {
			continue
		}
		if contended {
			known.contendedUntil = now + int64(c.Plans[i].Young())
		}
		known.readFirstUntil = min(0, now) // as a key of which nothing is known, before 1970 too
		if allowed {
			known.changed, known.denied = d.seq, denial{}
			d.put(string(key.Key), known)
			continue
		}
		var wait time.Duration
		for j := range key.Windows {
			if w := &key.Windows[j]; ticket.Excess(w, key.N) > 0 {
				own := tiers.Bucket{Width: 1, Index: now} // the hits of this moment
				known.readFirstUntil = max(known.readFirstUntil, now+int64(expiresAfter(w, own, now)))
				wait = max(wait, freedIn(w, key.N, now))
			}
		}
		if read {
			call.until = max(call.until, now+int64(min(wait, maxRecall)))
			if known.denied = (denial{}); wait > 0 && wait != Never {
				known.denied = denial{now, now + int64(wait), d.seq, key.N, call.windows[len(call.windows)-len(key.Windows):]}
			}
		}
		if there || contended || known.readFirstUntil > min(0, now) {
			d.put(string(key.Key), known)
		}
	}
	if call.until > now {
		makeRoom(d.calls)
		d.calls[string(appendName(d.name[:0], c))] = call
	}
}

// contended reports whether the key is remembered as contended at now.
func (d *denials) contended(key []byte, now int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now < d.keys[string(key)].contendedUntil
}

// raised forgets the denied calls of a key that hits were added to: their
// RetryAfter may be later now. That the key has no room is still true, unless the
// denial was recorded after mark, when the addition began: it may have found hits
// that were undone since.
func (d *denials) raised(key string, mark int64) { d.changed(key, mark) }

// lowered forgets the denials of a key whose counts may have fallen.
func (d *denials) lowered(key string) { d.changed(key, -1) }

// changed forgets the denied calls of a key, and the denial of the key if it was
// recorded after mark.
func (d *denials) changed(key string, mark int64) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.keys) == 0 {
		return
	}
	known := d.keys[key]
	if known.denied.seq > mark {
		known.denied = denial{}
	}
	d.seq++
	known.changed = d.seq
	d.put(key, known)
}

// mark is a point in the order of denials and changes.
func (d *denials) mark() int64 {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seq
}

// erase removes the key from the memory, also from calls of several keys.
func (d *denials) erase(key string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.keys, key)
	clear(d.name[:cap(d.name)])
	for name := range d.calls {
		if strings.Contains(name, " "+key+" ") {
			delete(d.calls, name)
		}
	}
}

func (d *denials) put(key string, known knownKey) {
	d.used.Store(true)
	if _, there := d.keys[key]; !there {
		d.lost = max(d.lost, makeRoom(d.keys).changed)
	}
	d.keys[key] = known
}

// makeRoom removes an arbitrary record, which is returned, if the records are many.
func makeRoom[V any](records map[string]V) (removed V) {
	if len(records) >= maxDenials {
		for some, record := range records {
			delete(records, some)
			return record
		}
	}
	return removed
}

// appendName appends the name of a call: of each key that is not soft the stored
// key, which holds no space, n and limits.
func appendName(name []byte, c *ticket.Call) []byte {
	for i := range c.Keys {
		key := &c.Keys[i]
		if key.Soft {
			continue
		}
		name = append(append(append(name, ' '), key.Key...), ' ')
		name = strconv.AppendInt(name, key.N, 36)
		for j := range key.Windows {
			w := &key.Windows[j]
			name = strconv.AppendInt(append(name, ' '), w.Max, 36)
			name = strconv.AppendInt(append(name, ' '), lengthOf(w, c.Label()), 36)
			if !w.Period.IsZero() {
				name = append(append(name, ' '), w.Period.String()...)
			}
		}
	}
	return name
}
