package counter

import (
	"strconv"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// denials is what this process remembers of keys that it was denied on, to
// spare a store over a network. Three things, and bounded:
//
//   - A call just like one that was denied is denied without any traffic, for
//     a second at most and not beyond its RetryAfter: until then counts can
//     only fall by a Refund or a Forget, and those of this process clear it. It
//     is fed by reads alone: what a ticket says includes racers who are about
//     to be taken back.
//   - On a key that was denied lately a call reads before it adds. Otherwise
//     the tickets of a crowd that is refused inflate the count for everybody,
//     and each attempt of an attacker leaves an empty bucket behind.
//   - Of a key on which calls of others were seen to be under way, its counts
//     are not taken at their word for a moment.
//
// When it is full, any record makes place: forgetting one costs traffic and
// nothing else.
type denials struct {
	mu   sync.Mutex
	keys map[string]denial // by stored key; recalls of several keys by all of them, joined
	seq  int64
}

const (
	maxDenials = 1 << 16
	maxRecall  = time.Second
)

// denial is what is remembered of one key, or of one call for several keys.
type denial struct {
	readFirstUntil int64            // until then, calls read first
	denyUntil      int64            // until then, the call below is denied; zero: not
	n              int64            // the call's n, of its first key
	windows        []backend.Window // its limits, with what was found
	denySeq        int64            // when until was set, as a number of denials.seq
	clearSeq       int64            // when the key's counts were last changed otherwise
	contendedUntil int64            // until then, others are taken to be under way on the key
}

func newDenials() *denials { return &denials{keys: map[string]denial{}} }

// recall tells whether this very call is remembered as denied at now; if so it
// fills in what was found then.
func (d *denials) recall(keys []backend.TakeKey, now int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.keys) == 0 {
		return false
	}
	r := d.keys[string(callKey(keys))]
	// A clock that was set back must not make a second last for hours.
	if now >= r.denyUntil || now < r.denyUntil-int64(maxRecall) || keys[0].N != r.n {
		return false
	}
	k := 0
	for _, key := range keys {
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
	for _, key := range keys {
		copy(key.Windows, r.windows)
		r.windows = r.windows[len(key.Windows):]
	}
	return true
}

// lately tells whether one of the keys was denied lately.
func (d *denials) readFirst(keys []backend.TakeKey, now int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		if now < d.keys[string(key.Key)].readFirstUntil {
			return true
		}
	}
	return false
}

// note remembers which keys denied a call, or that they admitted it.
func (d *denials) record(keys []backend.TakeKey, now int64, allowed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		r, there := d.keys[string(key.Key)]
		if allowed && !there {
			continue
		}
		r.denyUntil, r.readFirstUntil = 0, 0
		if allowed {
			d.seq++
			r.clearSeq = d.seq
		}
		for _, w := range key.Windows {
			if !allowed && w.Count > w.Max-key.N {
				r.readFirstUntil = max(r.readFirstUntil, now+int64(w.Reach))
			}
		}
		if r.readFirstUntil > 0 || there {
			d.put(key.Key, r)
		}
	}
}

// crowd remembers that calls of others were seen to be under way on these keys.
func (d *denials) recordContended(keys []backend.TakeKey, until int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		r := d.keys[string(key.Key)]
		r.contendedUntil = until
		d.put(key.Key, r)
	}
}

// crowded tells whether that was remembered, of a time that is not over.
func (d *denials) contended(key []byte, now int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now < d.keys[string(key)].contendedUntil
}

// learn is note for a call that was answered by a read, or by an atomic step of
// the store: a denial is remembered until the call would be admitted, and a
// second at most. That is by this process's own clock: what RetryAfter adds for
// those whose clocks are behind would deny wrongly here.
func (d *denials) recordRead(c *Counter, keys []backend.TakeKey, now int64, allowed bool) {
	d.record(keys, now, allowed)
	if allowed {
		return
	}
	var retry time.Duration
	var windows []backend.Window
	for _, key := range keys {
		for i := range key.Windows {
			retry = max(retry, c.plan.state(&key.Windows[i], now, key.N, false).retryAfter)
		}
		windows = append(windows, key.Windows...)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := callKey(keys)
	r := d.keys[string(key)]
	d.seq++
	r.denyUntil, r.n, r.windows, r.denySeq = now+int64(min(retry-c.skew, maxRecall)), keys[0].N, windows, d.seq
	d.put(key, r)
}

// clear drops what would be recalled of a key: its counts have changed.
func (d *denials) clear(key []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.keys) > 0 {
		d.seq++
		r := d.keys[string(key)]
		d.put(key, denial{readFirstUntil: r.readFirstUntil, clearSeq: d.seq, contendedUntil: r.contendedUntil})
	}
}

func (d *denials) put(key []byte, r denial) {
	if _, there := d.keys[string(key)]; !there && len(d.keys) >= maxDenials {
		for some := range d.keys {
			delete(d.keys, some)
			break
		}
	}
	d.keys[string(key)] = r
}

// callKey names a call: no stored key holds a space.
func callKey(keys []backend.TakeKey) []byte {
	if len(keys) == 1 {
		return keys[0].Key
	}
	var name []byte
	for i := range keys {
		name = append(append(name, keys[i].Key...), ' ')
		name = append(strconv.AppendInt(name, keys[i].N, 10), ' ')
	}
	return name
}
