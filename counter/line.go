package counter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// lines bound how many calls of one key are under way at a store over a
// network at once. The others wait before they read the clock, so that a crowd
// on one key is a short queue in the process and not a long one at the server,
// where each call would grow too old for its answer. Most of a crowd need no
// trip then: by the time they are let in, the key is known to be denied.
//
// A line is for one key alone: a hot key holds up nobody else's calls. There
// is one while calls of the key are under way.
type lines struct {
	parts [lineParts]linePart
}

const (
	lineParts = 64
	lineWidth = 8 // calls of one key under way at once; 1 would be one trip after the other
)

type linePart struct {
	mu   sync.Mutex
	keys map[string]*line
	free *line
	_    [40]byte // a cache line for each
}

// line is the line of one key, under the lock of its part.
type line struct {
	inside  int             // calls under way
	waiting []chan struct{} // of those who wait, first come first; each is closed for whoever is let in
	next    *line           // in the list of those that are free
}

// errQueue is the error of a call whose patience ended before it was its turn.
var errQueue = errors.New("too many calls of this key were under way, and none of them was answered in time")

// queue is decide behind the calls of the same keys that came before it, with a
// label that was read after the waiting.
func (k *call) queue(ctx context.Context) (bool, error) {
	c := k.c
	if deadline, ok := ctx.Deadline(); ok && !k.req.Deadline.IsZero() && deadline.Before(k.req.Deadline) {
		k.req.Deadline = deadline
	}
	if k.req.Peek {
		return k.decide(ctx)
	}
	if k.recalled() {
		return false, nil
	}
	order := k.order()
	queued := false
	for i, d := range order {
		waited, err := c.lines.enter(ctx, k.req.Keys[d].Key, k.req.Deadline)
		if err != nil {
			k.leave(order[:i])
			return false, callError(ctx, k.asks[d].Key.Event, err)
		}
		queued = queued || waited
	}
	defer k.leave(order)
	if queued {
		c.stats.waited.Add(1)
		if err := k.read(); err != nil {
			return false, err
		}
		if k.recalled() {
			return false, nil
		}
	}
	return k.decide(ctx)
}

func (k *call) leave(entered []int) {
	for _, d := range entered {
		k.c.lines.leave(k.req.Keys[d].Key)
	}
}

// recalled tells whether this very call is remembered as denied.
func (k *call) recalled() bool { return k.c.denied.recall(k.req.Keys, k.label) }

func newLines() *lines {
	l := &lines{}
	for i := range l.parts {
		l.parts[i].keys = map[string]*line{}
	}
	return l
}

func (l *lines) part(key []byte) *linePart {
	h := uint32(2166136261) // FNV-1a
	for _, b := range key {
		h = (h ^ uint32(b)) * 16777619
	}
	return &l.parts[h%lineParts]
}

// enter lets a call in for the key, after those that came before it. waited
// tells whether it had to wait. It is an error of ctx, or errQueue if the time
// until is over first; then the call is not inside.
func (l *lines) enter(ctx context.Context, key []byte, until time.Time) (waited bool, err error) {
	p := l.part(key)
	p.mu.Lock()
	n := p.keys[string(key)]
	if n == nil {
		if n = p.free; n == nil {
			n = &line{}
		} else {
			p.free, n.next = n.next, nil
		}
		p.keys[string(key)] = n
	}
	if n.inside < lineWidth {
		n.inside++
		p.mu.Unlock()
		return false, nil
	}
	turn := make(chan struct{})
	n.waiting = append(n.waiting, turn)
	p.mu.Unlock()

	var over <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-turn:
		return true, nil
	case <-over:
		err = errQueue
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(n.waiting, turn); i >= 0 {
		n.waiting = slices.Delete(n.waiting, i, i+1)
		return true, err
	}
	return true, nil // it was let in meanwhile
}

// leave lets the next in.
func (l *lines) leave(key []byte) {
	p := l.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.keys[string(key)]
	if len(n.waiting) > 0 {
		close(n.waiting[0])
		n.waiting = n.waiting[1:]
		return
	}
	if n.inside--; n.inside == 0 {
		delete(p.keys, string(key))
		n.waiting = nil
		n.next, p.free = p.free, n
	}
}

// crowded tells whether others are seen to be under way on the key, in this
// process or a moment ago by it.
func (c *Counter) crowded(key []byte, label int64) bool {
	return c.lines != nil && (c.lines.crowded(key) || c.denied.crowded(key, label))
}

// crowded tells whether more than one call of the key is under way or waits.
func (l *lines) crowded(key []byte) bool {
	p := l.part(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.keys[string(key)]
	return n != nil && n.inside+len(n.waiting) > 1
}
