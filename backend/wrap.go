package backend

import (
	"context"
	"errors"
	"time"
)

// Kind is the kind of a [Trip].
type Kind int

const (
	KindRead      Kind = iota // buckets are read
	KindAdd                   // hits are added; buckets may be read beside them
	KindTakeBack              // hits are taken back; buckets may be read beside them
	KindTake                  // an atomic step
	KindPeek                  // an atomic step that writes nothing
	KindForget                // a key is emptied
	KindForgotten             // the label of the last Forget is read
	KindCheck                 // the servers are looked at
)

var kinds = [...]string{"read", "add", "take back", "take", "peek", "forget", "forgotten", "check"}

// String returns the kind in words, for the label of a metric: "take back".
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kinds) {
		return "unknown"
	}
	return kinds[k]
}

// Trip is a call of a store, as seen by a wrapper. A Trip names no keys, which
// may be personal addresses.
type Trip struct {
	Kind     Kind
	Keys     int       // keys of an atomic step; otherwise 1
	Buckets  int       // buckets to add to or to read; 0 where the store chooses the buckets
	Deadline time.Time // by which the call must have returned; zero: the store's own timeout
	Allowed  bool      // filled in by do: the atomic step was allowed
}

// Around is called in place of each call of a store. do makes the trip, and can
// be called once: a trip that counts must not be sent again. An Around that
// does not call do refuses the trip, and must return an error. The context
// passed to do may be derived from ctx.
//
// An Around is called by many goroutines at once.
type Around func(ctx context.Context, trip *Trip, do func(context.Context) error) error

// Wrap puts an Around before all calls of a store. The result has the optional
// interfaces of the store, and ServerOf of a [Placer]: a Counter counts on the result
// as on the store.
//
// A refused KindTakeBack leaves hits in the store that deny other calls until
// they age out; a breaker should let takings back through. [Answered] tells
// failures of the store from other errors.
func Wrap(store Store, around Around) Store {
	w := &wrapped{store: store, around: around}
	var atomic takes
	var forgetter forgets
	var checker checks
	var has int
	if s, ok := store.(Atomic); ok {
		atomic, has = takes{w, s}, has|1
	}
	if s, ok := store.(Forgetter); ok {
		forgetter, has = forgets{w, s}, has|2
	}
	var here local
	if _, ok := store.(Local); ok {
		k, ok := store.(Keeper)
		here.keeps, has = ok && k.Keeps(), has|4
	}
	if s, ok := store.(Checker); ok {
		checker, has = checks{w, s}, has|8
	}
	switch has {
	case 1:
		return struct {
			*wrapped
			takes
		}{w, atomic}
	case 2:
		return struct {
			*wrapped
			forgets
		}{w, forgetter}
	case 1 | 2:
		return struct {
			*wrapped
			takes
			forgets
		}{w, atomic, forgetter}
	case 4:
		return struct {
			*wrapped
			local
		}{w, here}
	case 1 | 4:
		return struct {
			*wrapped
			takes
			local
		}{w, atomic, here}
	case 2 | 4:
		return struct {
			*wrapped
			forgets
			local
		}{w, forgetter, here}
	case 1 | 2 | 4:
		return struct {
			*wrapped
			takes
			forgets
			local
		}{w, atomic, forgetter, here}
	case 8:
		return struct {
			*wrapped
			checks
		}{w, checker}
	case 1 | 8:
		return struct {
			*wrapped
			takes
			checks
		}{w, atomic, checker}
	case 2 | 8:
		return struct {
			*wrapped
			forgets
			checks
		}{w, forgetter, checker}
	case 1 | 2 | 8:
		return struct {
			*wrapped
			takes
			forgets
			checks
		}{w, atomic, forgetter, checker}
	case 4 | 8:
		return struct {
			*wrapped
			local
			checks
		}{w, here, checker}
	case 1 | 4 | 8:
		return struct {
			*wrapped
			takes
			local
			checks
		}{w, atomic, here, checker}
	case 2 | 4 | 8:
		return struct {
			*wrapped
			forgets
			local
			checks
		}{w, forgetter, here, checker}
	case 1 | 2 | 4 | 8:
		return struct {
			*wrapped
			takes
			forgets
			local
			checks
		}{w, atomic, forgetter, here, checker}
	}
	return w
}

// Answered tells whether the store has answered the call that ended with err:
// without an error, or with [ErrStaleLabel] or [ErrMaxCount], after which
// nothing was added. Any other error is a failure, unless the context of the
// call was done.
func Answered(err error) bool {
	return err == nil || errors.Is(err, ErrStaleLabel) || errors.Is(err, ErrMaxCount)
}

// errTwice is the error of an Around that makes a trip again.
var errTwice = errors.New("backend: an Around made its trip twice")

// wrapped is a Store with an Around.
type wrapped struct {
	store  Store
	around Around
}

// trip makes a trip by way of the Around.
func (w *wrapped) trip(ctx context.Context, trip *Trip, do func(context.Context) error) error {
	made := false
	return w.around(ctx, trip, func(ctx context.Context) error {
		if made {
			return errTwice
		}
		made = true
		return do(ctx)
	})
}

// ServerOf is described in [Placer]; of any other store the server is not known.
func (w *wrapped) ServerOf(key string) string {
	if p, ok := w.store.(Placer); ok {
		return p.ServerOf(key)
	}
	return ""
}

func (w *wrapped) Do(ctx context.Context, r *Request) error {
	trip := Trip{Kind: KindRead, Keys: 1, Buckets: len(r.Add), Deadline: r.Deadline}
	r.Ordered = false // the trip may be refused
	for i := range r.Add {
		r.Add[i].Count = 0
	}
	for i := range r.Read {
		trip.Buckets += len(r.Read[i].Counts)
	}
	switch {
	case len(r.Add) > 0 && r.N > 0:
		trip.Kind = KindAdd
	case len(r.Add) > 0 && r.N < 0:
		trip.Kind = KindTakeBack
	}
	return w.trip(ctx, &trip, func(ctx context.Context) error { return w.store.Do(ctx, r) })
}

// takes is the atomic step of a wrapped store.
type takes struct {
	w      *wrapped
	atomic Atomic
}

func (t takes) Take(ctx context.Context, r *TakeRequest) error {
	trip := Trip{Kind: KindTake, Keys: len(r.Keys), Deadline: r.Deadline}
	if r.Peek {
		trip.Kind = KindPeek
	}
	return t.w.trip(ctx, &trip, func(ctx context.Context) error {
		err := t.atomic.Take(ctx, r)
		trip.Allowed = err == nil && r.Allowed
		return err
	})
}

func (t takes) Together(keys []TakeKey) bool { return t.atomic.Together(keys) }

// forgets is the forgetting of a wrapped store.
type forgets struct {
	w         *wrapped
	forgetter Forgetter
}

func (f forgets) Forget(ctx context.Context, r *ForgetRequest) error {
	trip := Trip{Kind: KindForget, Keys: 1, Deadline: r.Deadline}
	return f.w.trip(ctx, &trip, func(ctx context.Context) error { return f.forgetter.Forget(ctx, r) })
}

func (f forgets) Forgotten(ctx context.Context, key string, now, deadline time.Time) (label int64, err error) {
	trip := Trip{Kind: KindForgotten, Keys: 1, Deadline: deadline}
	err = f.w.trip(ctx, &trip, func(ctx context.Context) error {
		label, err = f.forgetter.Forgotten(ctx, key, now, deadline)
		return err
	})
	return label, err
}

// checks is the looking at the servers of a wrapped store. Report makes no trip.
type checks struct {
	w       *wrapped
	checker Checker
}

func (c checks) CheckServers(ctx context.Context, r *CheckRequest) error {
	trip := Trip{Kind: KindCheck, Keys: 1, Deadline: r.Deadline}
	r.Servers = nil // the trip may be refused
	return c.w.trip(ctx, &trip, func(ctx context.Context) error { return c.checker.CheckServers(ctx, r) })
}

func (c checks) Report() Report { return c.checker.Report() }

// local marks a store in this process. A store that is no Keeper does not keep.
type local struct{ keeps bool }

func (local) Local()        {}
func (l local) Keeps() bool { return l.keeps }
