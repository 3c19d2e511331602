package ticket

import (
	"hash/maphash"
	"sync"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// ownHits remembers the hits that this process has confirmed, for a store over a
// network. A young hit of another process may still be undone, and no one need
// wait for its bucket to leave the window; these hits stay. So RetryAfter counts
// them like old hits.
//
// The memory is of bounded size: when young is full, it becomes old, and what was
// old is dropped. A hit that is not remembered counts like a hit of another process.
// The nil memory remembers nothing.
type ownHits struct {
	seed       maphash.Seed
	mu         sync.Mutex
	young, old map[ownBucket]int64
}

// maxOwnHits bounds young and old: 2 MB each when full.
const maxOwnHits = 1 << 15

// ownBucket is a bucket of a stored key.
type ownBucket struct {
	key uint64 // the hash of the key
	tiers.Bucket
}

func newOwnHits() *ownHits { return &ownHits{seed: maphash.MakeSeed()} }

// add adds n hits with the label, which are confirmed, or undone if n is below zero.
// A denial looks for young hits in the finest tier that is kept for its window, which
// is the first of the tiers with one Keep: the others are not needed.
func (o *ownHits) add(key string, p *Plan, label, n int64) {
	for i := 0; o != nil && i < len(p.tiers); i = p.NextKeep(i) {
		o.change(key, p.bucketAt(label, i), n)
	}
}

// forget forgets the hits of the key in buckets with hits that may be undone at now.
func (o *ownHits) forget(key string, p *Plan, now int64) {
	for i := 0; o != nil && i < len(p.tiers); i = p.NextKeep(i) {
		for run := p.young(now, now, i); run.N > 0; run.N-- {
			o.change(key, tiers.Bucket{Width: run.Width, Index: run.First + run.N - 1}, -backend.MaxCount)
		}
	}
}

// others returns how many of count hits in a bucket of the key are not remembered.
func (o *ownHits) others(key string, b tiers.Bucket, count int64) int64 {
	if o == nil || count == 0 {
		return count
	}
	return max(0, count-o.change(key, b, 0))
}

// change adds n to the hits of a bucket, which end at 0, and returns them.
func (o *ownHits) change(key string, bucket tiers.Bucket, n int64) int64 {
	b := ownBucket{maphash.String(o.seed, key), bucket}
	o.mu.Lock()
	defer o.mu.Unlock()
	was, young := o.young[b]
	if !young {
		was = o.old[b]
	}
	now := max(0, was+n)
	if now == was {
		return now
	}
	if !young && (o.young == nil || len(o.young) >= maxOwnHits) {
		o.young, o.old = map[ownBucket]int64{}, o.young
	}
	o.young[b] = now
	return now
}
