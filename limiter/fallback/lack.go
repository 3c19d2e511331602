package fallback

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
)

// lack knows of which keys the local counter may lack hits, since there was no room.
// Each key has a slot, by a hash. A key without room for a hit is forgotten, and the
// slot is marked until the hit has left all windows. While a slot is marked, the local
// counter has either all hits of a key or none, but for newcomers: see callKey.lacks.
type lack struct {
	began  time.Time // of all instants
	slots  [4096]atomic.Int64
	latest atomic.Int64 // of all slots
}

// share is the part of the slots that are marked.
func (l *lack) share() float64 {
	marked := 0
	for i := range l.slots {
		if l.marked(&l.slots[i]) {
			marked++
		}
	}
	return float64(marked) / float64(len(l.slots))
}

func (l *lack) marked(until *atomic.Int64) bool { return int64(time.Since(l.began)) < until.Load() }

func (k *localKey) slot() *atomic.Int64 {
	slots := &k.local.lack.slots
	return &slots[k.hash/localShards%uint64(len(slots))]
}

// Lacking reports whether the local counter lacks hits of a key now.
func (f *Fallback) Lacking() bool { return f.local != nil && f.local.lack.marked(&f.local.lack.latest) }

// lose notes that the local counter has no room for n hits of k. Nothing else marks a
// slot, so the mark ends when there is room again, whatever the traffic.
func (k *callKey) lose(n int64) {
	l := k.local
	_ = k.rule.here.Forget(context.Background(), k.key) // a local counter in memory does not fail
	until := int64(time.Since(l.lack.began) + k.rule.longest + l.here.Config().Skew)
	for _, mark := range []*atomic.Int64{k.slot(), &l.lack.latest} {
		for old := mark.Load(); old < until && !mark.CompareAndSwap(old, until); {
			old = mark.Load()
		}
	}
	l.numbers.unmirrored.Add(n)
}

// newcomer begins the Feature of the key that counts the entries of a key into the
// local counter while the slot of the key is marked. A hash follows, and no text of
// the feature.
const newcomer = ":newcomer:"

func (k *localKey) newcomer() counter.Key {
	return counter.Key{Event: k.key.Event, Feature: newcomer + strconv.FormatUint(k.hash, 36)}
}

// enter notes that the key enters the local counter while its slot is marked, and
// reports whether the key may enter.
func (k *callKey) enter() bool {
	return !k.local.lack.marked(k.slot()) || k.rule.count(k.key) > 0 || k.rule.here.Add(context.Background(), k.newcomer(), 1) == nil
}

// lacks reports whether the local counter may lack hits of k: the slot is marked, and k
// has no hits, or entered so lately that an older hit may have found no room.
func (k *callKey) lacks() bool {
	return k.local.lack.marked(k.slot()) && (k.rule.count(k.key) == 0 || k.rule.count(k.newcomer()) > 0)
}

// count is the number of hits of key in the local counter.
func (r *Rule) count(key counter.Key) int64 {
	n, err := r.here.Count(context.Background(), key, r.longest)
	if err != nil {
		return 0
	}
	return n.High
}
