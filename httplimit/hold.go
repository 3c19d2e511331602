package httplimit

import (
	"container/list"
	"context"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const (
	// maxHolds bounds the holds without a request under way.
	maxHolds = 1000

	// placePatience is the time after which a request in flight keeps no other
	// request back: the service may take an hour for an answer.
	placePatience = 10 * time.Second

	// maxHoldJitter bounds the random part of a hold.
	maxHoldJitter = time.Minute
)

// holds are the hosts and partitions that have told of a limit. The keys are
// digests: a partition may be a secret, and a host as long as an answer.
type holds struct {
	most time.Duration // of a hold
	seed maphash.Seed
	mu   sync.Mutex
	of   map[uint64]*hold
}

// hold is the state of a partition of a host, under the lock of holds. Requests
// wait in the order in which they came.
type hold struct {
	until  time.Time
	denied bool      // a good answer does not change until: the request left before the denial
	left   int64     // before until: the least that an answer has left, 0 after a denial only
	most   int64     // requests that may be in flight from until on
	flying int64     // requests in flight that left after the last denial
	epoch  int       // number of denials
	told   int       // number of answers that told of quota
	queue  list.List // of *heldRequest; a request leaves from any place
	used   time.Time
}

// heldRequest is a request that waits.
type heldRequest struct {
	deadline time.Time     // zero: none
	turn     chan struct{} // of length 1: the state of the hold has changed
}

// place is the right of a request to be in flight.
type place struct {
	holds   *holds
	key     uint64
	hold    *hold       // nil: nothing was known of the partition
	epoch   int         // of the hold
	told    int         // of the hold, when the request left
	expires *time.Timer // frees the place
	free    bool
}

// counts tells whether the request of p is one of hold.flying.
func (p *place) counts() bool { return p.hold != nil && !p.free && p.epoch == p.hold.epoch }

func (hs *holds) init(most time.Duration) {
	if most == 0 {
		most = DefaultMaxHold
	}
	hs.most, hs.seed, hs.of = most, maphash.MakeSeed(), map[uint64]*hold{}
}

// enter returns when a request may leave. With ErrHeldBack, until is the time
// before which none may.
func (hs *holds) enter(ctx context.Context, host, partition string) (*place, time.Time, error) {
	p := &place{holds: hs, key: maphash.Comparable(hs.seed, [2]string{host, partition})}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.of[p.key]
	if h == nil {
		return p, time.Time{}, ctx.Err()
	}
	w := &heldRequest{turn: make(chan struct{}, 1)}
	w.deadline, _ = ctx.Deadline()
	place := h.queue.PushBack(w)
	h.used = time.Now()
	defer func() {
		h.queue.Remove(place)
		h.wake()
		hs.tidy(p.key, h)
	}()
	for {
		now := time.Now()
		first := h.queue.Front() == place
		switch {
		case ctx.Err() != nil:
			return nil, h.end(now), ctx.Err()
		case h.closed(now) && !w.deadline.IsZero() && w.deadline.Before(h.until):
			return nil, h.until, ErrHeldBack
		case first && h.open(now):
			p.take(h)
			return p, time.Time{}, nil
		}
		rest := h.until.Sub(now)
		hs.mu.Unlock()
		w.sleep(ctx, first, rest)
		hs.mu.Lock()
	}
}

// sleep returns when w is to look again: the first of a queue at the latest when
// a rest that is positive is over.
func (w *heldRequest) sleep(ctx context.Context, first bool, rest time.Duration) {
	var over <-chan time.Time
	if first && rest > 0 {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-w.turn:
	case <-over:
	case <-ctx.Done():
	}
}

// open tells whether a request may leave.
func (h *hold) open(now time.Time) bool {
	if now.Before(h.until) {
		return h.left > h.flying
	}
	return h.flying < h.most
}

// closed reports whether no request will leave before until. Only the service's own
// word closes: an answer without fields may be that of a page without a limit, or of a
// balancer.
func (h *hold) closed(now time.Time) bool { return h.denied && now.Before(h.until) }

// end is until, if no request will leave before.
func (h *hold) end(now time.Time) time.Time {
	if h.closed(now) {
		return h.until
	}
	return time.Time{}
}

// wake has the first of the queue look at the hold.
func (h *hold) wake() {
	if first := h.queue.Front(); first != nil {
		first.Value.(*heldRequest).look()
	}
}

func (w *heldRequest) look() {
	select {
	case w.turn <- struct{}{}:
	default: // w will look anyway
	}
}

// take counts p as in flight. A p that was in flight before no longer counts.
func (p *place) take(h *hold) {
	if p.expires != nil {
		p.expires.Stop()
	}
	h.flying++
	p.hold, p.epoch, p.told, p.free = h, h.epoch, h.told, false
	p.expires = time.AfterFunc(placePatience, p.leave)
}

// stays tells whether the request of p may still leave, if need be in another place:
// p may have been freed, or a denial may have closed the way for a while.
func (p *place) stays() bool {
	hs, now := p.holds, time.Now()
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.of[p.key]
	if h == nil && p.hold != nil { // removed while the request waited
		h = p.hold
		hs.of[p.key] = h
	}
	switch {
	case h == nil || p.counts() && !h.closed(now):
		return true
	case p.counts() || h.queue.Len() > 0 || !h.open(now):
		return false
	}
	p.take(h)
	return true
}

// leave ends the right of p.
func (p *place) leave() {
	hs := p.holds
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if p.hold == nil || p.free {
		return
	}
	if p.counts() {
		p.hold.flying--
	}
	p.free = true
	p.expires.Stop()
	p.hold.wake()
	hs.tidy(p.key, p.hold)
}

// heard notes the answer to the request of p.
func (p *place) heard(answer *http.Response) {
	hs, now := p.holds, time.Now()
	a := adviceOf(answer, now)
	a.wait = min(a.wait, hs.most)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.of[p.key]
	if h == nil {
		if !a.told {
			return
		}
		h = hs.add(p.key)
	}
	h.used = now
	h.heard(a, now, h == p.hold && p.counts(), h == p.hold && p.told == h.told)
	for at := h.queue.Front(); at != nil && h.closed(now); at = at.Next() {
		if w := at.Value.(*heldRequest); !w.deadline.IsZero() && w.deadline.Before(h.until) {
			w.look() // its turn would come too late
		}
	}
	h.wake()
}

// heard notes an answer; own tells that h.flying counts the request of the answer, and
// newest that the request left after the last answer that told of quota.
func (h *hold) heard(a advice, now time.Time, own, newest bool) {
	if a.told {
		h.told++
	}
	holding := h.denied && now.Before(h.until)
	switch until := now.Add(a.wait); {
	case a.told && a.left == 0:
		until = until.Add(rand.N(min(a.wait/100*3, maxHoldJitter) + 1))
		if !holding || until.After(h.until) {
			h.until = until
		}
		h.denied, h.left, h.most, h.flying = true, 0, 1, 0
		h.epoch++
	case holding:
	case a.told:
		// Answers of a window may come in another order than their requests were
		// counted in: the least is the latest. Its end is told in whole seconds. The end
		// of a sliding window moves on instead, and its room comes back.
		if !newest && until.Sub(h.until).Abs() <= time.Second {
			a.left = min(a.left, h.left)
		}
		h.until, h.denied, h.left, h.most = until, false, a.left, a.left+h.flying
	case own && !now.Before(h.until):
		h.most++
	}
}

// add makes a hold, in the place of the hold that was used least recently if there
// are too many.
func (hs *holds) add(key uint64) *hold {
	if len(hs.of) >= maxHolds {
		var oldest uint64
		var at *hold
		for key, h := range hs.of {
			if h.idle() && (at == nil || h.used.Before(at.used)) {
				oldest, at = key, h
			}
		}
		if at != nil {
			delete(hs.of, oldest)
		}
	}
	h := &hold{}
	hs.of[key] = h
	return h
}

func (h *hold) idle() bool { return h.queue.Len() == 0 && h.flying == 0 }

// tidy removes a hold that is over.
func (hs *holds) tidy(key uint64, h *hold) {
	if h.idle() && !time.Now().Before(h.until) && hs.of[key] == h {
		delete(hs.of, key)
	}
}
