package counter

import (
	"hash/maphash"
	"sync"

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
// A denial looks for pending hits in the finest tier that is kept for its window, which
// is the first of the tiers with one Keep: the others are not needed.
func (o *ownHits) add(key string, p *plan, label, n int64) {
	if o == nil {
		return
	}
	hash := maphash.String(o.seed, key)
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := 0; i < len(p.tiers); i = p.nextKeep(i) {
		b := ownBucket{hash, p.bucketAt(label, i)}
		if was := o.get(b); was+n > 0 || was > 0 {
			o.set(b, max(0, was+n))
		}
	}
}

// forget forgets the hits of the key in buckets with hits that may be pending at now.
func (o *ownHits) forget(key string, p *plan, now int64) {
	if o == nil {
		return
	}
	hash := maphash.String(o.seed, key)
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := 0; i < len(p.tiers); i = p.nextKeep(i) {
		for run := p.pendingRun(now, now, p.tiers[i].Width); run.N > 0; run.N-- {
			b := ownBucket{hash, tiers.Bucket{Width: run.Width, Index: run.First + run.N - 1}}
			delete(o.young, b)
			delete(o.old, b)
		}
	}
}

// others returns how many of count hits in a bucket of the key are not remembered.
func (o *ownHits) others(key string, b tiers.Bucket, count int64) int64 {
	if o == nil || count == 0 {
		return count
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return max(0, count-o.get(ownBucket{maphash.String(o.seed, key), b}))
}

func (o *ownHits) get(b ownBucket) int64 {
	if n, ok := o.young[b]; ok {
		return n
	}
	return o.old[b]
}

func (o *ownHits) set(b ownBucket, n int64) {
	if _, ok := o.young[b]; !ok && (o.young == nil || len(o.young) >= maxOwnHits) {
		o.young, o.old = map[ownBucket]int64{}, o.young
	}
	o.young[b] = n
}
