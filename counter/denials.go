package counter

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/ticket"
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
// costs traffic and nothing else.
type denials struct {
	used atomic.Bool // anything is remembered
	mu   sync.Mutex
	keys map[string]denial // by stored key; for a call of several keys, by all stored keys, joined
	seq  int64
}

const (
	maxDenials = 1 << 16
	maxRecall  = time.Second
)

// denial is the memory of a key, or of a call for several keys. Times are in
// nanoseconds since the Unix epoch.
type denial struct {
	readFirstUntil int64            // calls before this time read first
	denyUntil      int64            // the call below is denied before this time; zero: no call is
	n              int64            // the n of the denied call, for its first key
	windows        []backend.Window // the limits of the denied call, with the counts found
	deniedAt       int64            // the label of the denied call
	standsUntil    int64            // of a key by itself: the key has no room for n before this time, unless hits are given back; zero: not known
	denySeq        int64            // the value of denials.seq when denyUntil or standsUntil was set
	clearSeq       int64            // the value of denials.seq when the counts of the key last changed otherwise
	contendedUntil int64            // the key counts as contended before this time
}

func newDenials() *denials { return &denials{keys: map[string]denial{}} }

// recall tells whether a call equal to this call is remembered as denied at
// now, and fills in the counts found then.
func (d *denials) recall(keys []backend.TakeKey, now int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.keys) == 0 {
		return false
	}
	r := d.keys[string(nameOf(keys))]
	// A clock that was set back must not make a second last for hours.
	if now >= r.denyUntil || now < r.denyUntil-int64(maxRecall) || keys[0].N != r.n {
		return false
	}
	k := 0
	for i := range keys {
		key := &keys[i]
		if key.Soft {
			continue
		}
		if len(keys) > 1 && d.keys[string(key.Key)].clearSeq > r.denySeq {
			return false
		}
		for _, w := range key.Windows {
			if k == len(r.windows) || r.windows[k].Max != w.Max || r.windows[k].Reach != w.Reach {
				return false
			}
			k++
		}
	}
	if k != len(r.windows) {
		return false
	}
	for i := range keys {
		key := &keys[i]
		if key.Soft {
			continue
		}
		copy(key.Windows, r.windows)
		r.windows = r.windows[len(key.Windows):]
	}
	return true
}

// lastDenial tells whether a key is known to have no room at now for as many
// hits under limits as high, and fills in the counts found then. N becomes the n
// that was denied.
func (d *denials) lastDenial(keys []backend.TakeKey, now int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	denied := false
	for i := range keys {
		key := &keys[i]
		// A clock that was set back must not make a denial last longer.
		if r := d.keys[string(key.Key)]; now >= r.standsUntil || now < r.deniedAt-int64(maxRecall) || key.Soft || !r.covers(key) {
			continue
		} else {
			copy(key.Windows, r.windows)
			key.N, denied = r.n, true
		}
	}
	return denied
}

// covers tells whether the denial of r is a denial of key too: for as many hits
// or more, under limits as high or lower.
func (r *denial) covers(key *backend.TakeKey) bool {
	if key.N < r.n || len(key.Windows) != len(r.windows) {
		return false
	}
	for i := range r.windows {
		if key.Windows[i].Reach != r.windows[i].Reach || key.Windows[i].Max > r.windows[i].Max {
			return false
		}
	}
	return true
}

// readFirst tells whether a call for these keys should read before adding.
func (d *denials) readFirst(keys []backend.TakeKey, now int64) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range keys {
		if key := &keys[i]; !key.Soft && now < d.keys[string(key.Key)].readFirstUntil {
			return true
		}
	}
	return false
}

// record remembers the keys that denied a call, or the admission of a call.
func (d *denials) record(keys []backend.TakeKey, now int64, allowed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range keys {
		key := &keys[i]
		r, there := d.keys[string(key.Key)]
		if key.Soft || allowed && !there {
			continue
		}
		r.denyUntil, r.readFirstUntil = 0, 0
		if allowed {
			d.seq++
			r.clearSeq, r.standsUntil = d.seq, 0
		}
		for _, w := range key.Windows {
			if !allowed && ticket.Excess(&w, key.N) > 0 {
				r.readFirstUntil = max(r.readFirstUntil, now+int64(w.Reach))
			}
		}
		if r.readFirstUntil > 0 || there {
			d.put(string(key.Key), r)
		}
	}
}

// recordContended remembers that the keys of a call are contended.
func (d *denials) recordContended(c *ticket.Call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range c.Order() {
		key := string(c.Keys[i].Key)
		r := d.keys[key]
		r.contendedUntil = c.Label() + int64(c.Plans[i].Young())
		d.put(key, r)
	}
}

// contended tells whether the key is remembered as contended at now.
func (d *denials) contended(key []byte, now int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now < d.keys[string(key)].contendedUntil
}

// recordRead is record for an answer that came from a read, or from an atomic
// step of the store. A denial is remembered until the call would be admitted,
// for at most a second, by the clock of this process: RetryAfter is longer by
// Skew, for callers whose clocks are behind, and would deny wrongly here.
func (d *denials) recordRead(c *ticket.Call, allowed bool) {
	keys, now := c.Keys, c.Label()
	d.record(keys, now, allowed)
	if allowed {
		return
	}
	var until int64
	var windows []backend.Window
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq++
	for i := range keys {
		key := &keys[i]
		if key.Soft {
			continue
		}
		var wait time.Duration // without the Skew of RetryAfter
		for j := range key.Windows {
			if w := &key.Windows[j]; ticket.Excess(w, key.N) > 0 {
				wait = max(wait, freedIn(w, key.N, now))
			}
		}
		until = max(until, now+int64(min(wait, maxRecall)))
		windows = append(windows, key.Windows...)
		r := d.keys[string(key.Key)]
		switch {
		case wait > 0 && wait != Never:
			r.n, r.windows, r.deniedAt, r.denySeq = key.N, windows[len(windows)-len(key.Windows):], now, d.seq
			r.standsUntil = now + int64(wait)
			d.put(string(key.Key), r)
		case r.standsUntil > 0:
			r.standsUntil = 0
			d.put(string(key.Key), r)
		}
	}
	key := string(nameOf(keys))
	r := d.keys[key]
	r.denyUntil, r.n, r.windows, r.denySeq = until, keys[0].N, windows, d.seq
	d.put(key, r)
}

// raised forgets the denied call of a key that hits were added to: its RetryAfter
// may be later now. That the key has no room is still true, unless the denial was
// recorded after mark, when the addition began: it may have found hits that were
// taken back since.
func (d *denials) raised(key string, mark int64) {
	d.changed(key, func(r *denial) {
		r.denyUntil = 0
		if r.denySeq > mark {
			r.standsUntil = 0
		}
	})
}

// mark is a point in the order of denials and changes; d may be nil.
func (d *denials) mark() int64 {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seq
}

// lowered forgets the denials of a key whose counts may have fallen.
func (d *denials) lowered(key string) {
	d.changed(key, func(r *denial) {
		*r = denial{readFirstUntil: r.readFirstUntil, contendedUntil: r.contendedUntil}
	})
}

// changed changes the record of a key; d may be nil.
func (d *denials) changed(key string, change func(r *denial)) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.keys) > 0 {
		r := d.keys[key]
		change(&r)
		d.seq++
		r.clearSeq = d.seq
		d.put(key, r)
	}
}

func (d *denials) put(key string, r denial) {
	d.used.Store(true)
	if _, there := d.keys[key]; !there && len(d.keys) >= maxDenials {
		for some := range d.keys {
			delete(d.keys, some)
			break
		}
	}
	d.keys[key] = r
}

// nameOf names a call by its keys that are not soft. No stored key holds a
// space.
func nameOf(keys []backend.TakeKey) []byte {
	if len(keys) == 1 {
		return keys[0].Key
	}
	var name []byte
	for i := range keys {
		if keys[i].Soft {
			continue
		}
		name = append(append(name, keys[i].Key...), ' ')
		name = append(strconv.AppendInt(name, keys[i].N, 10), ' ')
	}
	return name
}
