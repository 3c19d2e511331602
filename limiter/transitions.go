package limiter

import (
	"cmp"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter/fallback"
)

// note logs what a decision changes.
func (t *transitions) note(v *Verdict, l *fallback.Fallback) {
	t.decided(v, l)
	t.room(v, l)
}

// transitions tells a Logger of changes, in the goroutine of the call that is the
// first after a change.
type transitions struct {
	to                   *slog.Logger // nil: slog.Default
	store, local, clocks episode
	mirror, additions    episode
}

func (t *transitions) logger() *slog.Logger { return cmp.Or(t.to, slog.Default()) }

// decided tells of a decision without the store, or in this process, and of the
// first by the store ten seconds after the last of these.
func (t *transitions) decided(v *Verdict, l *fallback.Fallback) {
	if v.Degraded == nil && (v.Key == (counter.Key{}) || v.Override != nil) { // no store was asked
		return
	}
	switch e := t.store.see(v.Degraded != nil); {
	case e.begun:
		t.logger().Warn("limiter: decisions are made without the store", "error", v.Degraded)
	case e.over:
		t.logger().Info("limiter: decisions are made by the store again", "lasted", e.lasted, "decisions", e.times)
	}
	switch e := t.local.see(v.local); {
	case e.begun:
		t.logger().Warn("limiter: decisions are made by Config.Local")
	case e.over:
		t.logger().Info("limiter: decisions are no longer made by Config.Local", "lasted", e.lasted, "decisions", e.times, "pending", l.Stats().Pending)
	}
}

// room logs a local counter that lacks hits, and additions without room.
func (t *transitions) room(v *Verdict, l *fallback.Fallback) {
	switch e := t.mirror.see(l.Lacking()); {
	case e.begun:
		t.logger().Warn("limiter: Config.Local was full and lacks hits: while the store fails, it denies keys that it does not know", "hits", l.Stats().Unmirrored)
	case e.over:
		t.logger().Info("limiter: Config.Local has all hits again", "lasted", e.lasted)
	}
	switch e := t.additions.see(errors.Is(v.Degraded, fallback.ErrPendingFull)); {
	case e.begun:
		t.logger().Warn("limiter: too many hits wait to be carried to the store: keys that the store has not admitted before are denied", "additions", l.Stats().Additions)
	case e.over:
		t.logger().Info("limiter: there is room again for hits that wait to be carried to the store", "lasted", e.lasted, "decisions", e.times)
	}
}

// checked tells of clocks that a Check has found apart by more than half of the
// Skew, with which two processes may be apart by more than the Skew.
func (t *transitions) checked(c *counter.Counter) {
	s := c.Stats()
	switch e := t.clocks.see(s.ClockAhead.Abs()-s.ClockWithin > c.Config().Skew/2); {
	case e.begun:
		t.logger().Warn("limiter: the clocks of the store and of this process are apart by more than half of Config.Skew", "ahead", s.ClockAhead.String(), "within", s.ClockWithin.String(), "skew", c.Config().Skew.String())
	case e.over:
		t.logger().Info("limiter: the clocks of the store and of this process agree again", "ahead", s.ClockAhead.String(), "within", s.ClockWithin.String())
	}
}

const (
	calm  = 10 * time.Second // without a mishap, after which an episode is over
	quiet = time.Minute      // from one logged episode to the next
)

// episode is a time of mishaps, with less than calm in between. Many goroutines
// may use an episode at once.
type episode struct {
	on          atomic.Bool
	mu          sync.Mutex
	began, last time.Time
	times       int64
	told        bool      // of this episode
	toldAt      time.Time // of the last logged episode
}

// change is the change by a call.
type change struct {
	begun, over bool
	lasted      string // from the first mishap to the last
	times       int64  // mishaps
}

// see notes a call, which was a mishap or not.
func (e *episode) see(mishap bool) change {
	if !mishap && !e.on.Load() {
		return change{}
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	on := e.on.Load()
	switch {
	case mishap && !on:
		e.on.Store(true)
		e.began, e.last, e.times, e.told = now, now, 1, false
	case mishap:
		e.last = now
		e.times++
	case on && now.Sub(e.last) >= calm:
		e.on.Store(false)
		return change{over: e.told, lasted: e.last.Sub(e.began).Round(time.Millisecond).String(), times: e.times}
	}
	if mishap && !e.told && (e.toldAt.IsZero() || now.Sub(e.toldAt) >= quiet) {
		e.told, e.toldAt = true, now
		return change{begun: true}
	}
	return change{}
}
