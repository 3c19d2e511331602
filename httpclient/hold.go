package httpclient

import (
	"cmp"
	"container/list"
	"context"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// maxHolds bounds the holds without a request under way.
const maxHolds = 1000

// placePatience is the time after which a request in flight keeps no other request back:
// the service may take an hour for an answer.
const placePatience = 10 * time.Second

// holds are the hosts and partitions that have spoken of a limit. The keys are
// digests: a partition may be a secret, and a host as long as an answer.
type holds struct {
	most time.Duration // of a hold
	seed maphash.Seed
	mu   sync.Mutex
	of   map[uint64]*hold
}

// hold is the state of a partition of a host, under the lock of holds. Requests
// wait in the order of their arrival.
type hold struct {
	until  time.Time
	denied bool      // a good answer does not change until: the request left before the denial
	left   int64     // before until: the least that an answer has left, 0 after a denial only
	most   int64     // requests that may be in flight from until on
	flying int64     // requests in flight that left after the last denial
	epoch  int       // number of denials
	told   int       // number of answers that have changed left
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
	epoch   int         // of the hold, or freed
	told    int         // of the hold, when the request left
	expires *time.Timer // frees the place
}

// freed is the epoch of a place that has ended.
const freed = -1

// counts reports whether the request of p is one of hold.flying.
func (p *place) counts() bool { return p.hold != nil && p.epoch == p.hold.epoch }

// enter returns when a request may leave. If none may before a time, an error comes
// with the time, until.
func (hs *holds) enter(ctx context.Context, host, partition string) (_ *place, until time.Time, err error) {
	p := &place{holds: hs, key: maphash.Comparable(hs.seed, [2]string{host, partition})}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.of[p.key]
	if h == nil {
		return p, until, ctx.Err()
	}
	w := &heldRequest{turn: make(chan struct{}, 1)}
	w.deadline, _ = ctx.Deadline()
	inQueue := h.queue.PushBack(w)
	h.used = time.Now()
	defer func() {
		h.queue.Remove(inQueue)
		hs.next(p.key, h)
	}()
	for {
		now, first := time.Now(), h.queue.Front() == inQueue
		var over <-chan time.Time
		switch err := ctx.Err(); {
		case err != nil || h.late(w, now):
			if h.closed(now) {
				until = h.until
			}
			return nil, until, cmp.Or(err, ErrHeldBack)
		case first && h.open(now):
			p.take(h)
			return p, until, nil
		case first && now.Before(h.until):
			over = time.After(h.until.Sub(now))
		}
		hs.mu.Unlock()
		select {
		case <-w.turn:
		case <-over:
		case <-ctx.Done():
		}
		hs.mu.Lock()
	}
}

// open reports whether a request may leave.
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

// late reports whether the turn of w would come after its deadline.
func (h *hold) late(w *heldRequest, now time.Time) bool {
	return h.closed(now) && !w.deadline.IsZero() && w.deadline.Before(h.until)
}

// look has the request at a place of the queue, if there is one, look at the hold again.
func look(at *list.Element) {
	if at != nil {
		select {
		case at.Value.(*heldRequest).turn <- struct{}{}:
		default: // it will look anyway
		}
	}
}

// take counts p as in flight. A p that was in flight before no longer counts.
func (p *place) take(h *hold) {
	if p.expires != nil {
		p.expires.Stop()
	}
	h.flying++
	p.hold, p.epoch, p.told = h, h.epoch, h.told
	p.expires = time.AfterFunc(placePatience, p.leave)
}

// stays reports whether the request of p may still leave, if need be in another place:
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
	if p.hold == nil || p.epoch == freed {
		return
	}
	if p.counts() {
		p.hold.flying--
	}
	p.epoch = freed
	p.expires.Stop()
	hs.next(p.key, p.hold)
}

// heard notes the answer to the request of p.
func (p *place) heard(answer *http.Response) {
	hs, now := p.holds, time.Now()
	a := adviceOf(answer, now)
	a.wait = min(a.wait, hs.most)
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.of[p.key]
	switch {
	case h == nil && a.told:
		h = hs.add(p.key)
	case h == nil:
		return
	}
	h.used = now
	h.heard(a, now, h == p.hold && p.counts(), h == p.hold && p.told == h.told)
	for at := h.queue.Front(); at != nil && h.closed(now); at = at.Next() {
		if h.late(at.Value.(*heldRequest), now) {
			look(at)
		}
	}
	look(h.queue.Front())
}

// heard notes an answer. own reports whether h.flying counts the answer's request, and
// newest whether the request left after the last answer that changed h.left.
func (h *hold) heard(a advice, now time.Time, own, newest bool) {
	switch until := now.Add(a.wait); {
	case a.told && a.left == 0:
		until = until.Add(rand.N(min(a.wait/100*3, time.Minute) + 1))
		if !h.closed(now) || until.After(h.until) {
			h.until = until
		}
		h.denied, h.left, h.most, h.flying = true, 0, 1, 0
		h.epoch++
		h.told++
	case h.closed(now):
	case a.told:
		// Answers of a window may come in another order than their requests were
		// counted in: the least is the latest. Its end is told in whole seconds. The end
		// of a sliding window moves on instead, and its room comes back.
		if !newest && until.Sub(h.until).Abs() <= time.Second {
			a.left = min(a.left, h.left)
		}
		h.until, h.denied, h.left, h.most = until, false, a.left, a.left+h.flying
		h.told++
	case own && !now.Before(h.until):
		h.most++
	}
}

// add makes a hold. If there are too many, it replaces the one used least recently.
func (hs *holds) add(key uint64) *hold {
	if len(hs.of) >= maxHolds {
		oldest, at := uint64(0), time.Time{}
		for key, h := range hs.of {
			if h.idle() && (at.IsZero() || h.used.Before(at)) {
				oldest, at = key, h.used
			}
		}
		delete(hs.of, oldest)
	}
	hs.of[key] = &hold{}
	return hs.of[key]
}

func (h *hold) idle() bool { return h.queue.Len() == 0 && h.flying == 0 }

// next is to be called when a request has left the queue of h or its place: the next may
// go, and a hold that is over is removed.
func (hs *holds) next(key uint64, h *hold) {
	look(h.queue.Front())
	if h.idle() && !time.Now().Before(h.until) && hs.of[key] == h {
		delete(hs.of, key)
	}
}
