package backend

import (
	"context"
	"errors"
	"time"
)

// Kind is the kind of a [Trip], in words.
type Kind string

const (
	KindRead      Kind = "read"      // buckets are read
	KindAdd       Kind = "add"       // hits are added; buckets may be read beside them
	KindTakeBack  Kind = "take back" // hits are taken back; buckets may be read beside them
	KindTake      Kind = "take"      // an atomic step
	KindPeek      Kind = "peek"      // an atomic step that writes nothing
	KindForget    Kind = "forget"    // a key is emptied
	KindForgotten Kind = "forgotten" // the label of the last Forget is read
	KindCheck     Kind = "check"     // the servers are looked at
)

// String returns the words, for the label of a metric.
func (k Kind) String() string { return string(k) }

// Trip is a call of a store, as seen by a wrapper. A Trip names no keys, which
// may be personal addresses.
type Trip struct {
	Kind     Kind
	Keys     int       // keys of an atomic step; otherwise 1
	Buckets  int       // buckets to add to or to read; 0 where the store chooses the buckets
	Deadline time.Time // by which the call must have returned; zero: the store's own timeout
	Allowed  bool      // filled in by do: the atomic step was allowed
}

// Around is called instead of each call of a store. do makes the trip, and can
// be called once: a trip that counts must not be sent again. An Around that
// does not call do refuses the trip, and must return an error. The context
// passed to do may be derived from ctx.
//
// An Around is called by many goroutines at once.
type Around func(ctx context.Context, trip *Trip, do func(context.Context) error) error

// Wrap puts an Around before all calls of a store. [As] finds the optional
// interfaces of the store in the result: a Counter counts on the result as on the
// store, but for the fast path of [Local.Bind], since an Around sees every call.
//
// A refused KindTakeBack leaves hits in the store that deny other calls until
// they age out; a breaker should let undos through. [Answered] distinguishes
// failures of the store from other errors.
func Wrap(store Store, around Around) Store { return &wrapped{store, around} }

// Answered reports whether the store has answered the call that ended with err:
// without an error, or with [ErrStaleLabel] or [ErrMaxCount], after which
// nothing was added. Any other error is a failure, unless the context of the
// call was done.
func Answered(err error) bool {
	return err == nil || errors.Is(err, ErrStaleLabel) || errors.Is(err, ErrMaxCount)
}

// errTwice is the error of an Around that makes a trip again.
var errTwice = errors.New("backend: an Around made its trip twice")

// wrapped is a Store with an Around. It has the methods of all optional
// interfaces; [As] tells which of them the store inside has as well.
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

func (w *wrapped) Take(ctx context.Context, r *TakeRequest) error {
	trip := Trip{Kind: KindTake, Keys: len(r.Keys), Deadline: r.Deadline}
	if r.Peek {
		trip.Kind = KindPeek
	}
	return w.trip(ctx, &trip, func(ctx context.Context) error {
		err := w.store.(Atomic).Take(ctx, r)
		trip.Allowed = err == nil && r.Allowed
		return err
	})
}

func (w *wrapped) Forget(ctx context.Context, r *ForgetRequest) error {
	trip := Trip{Kind: KindForget, Keys: 1, Deadline: r.Deadline}
	return w.trip(ctx, &trip, func(ctx context.Context) error { return w.store.Forget(ctx, r) })
}

func (w *wrapped) Forgotten(ctx context.Context, r *ForgetRequest) (label int64, err error) {
	trip := Trip{Kind: KindForgotten, Keys: 1, Deadline: r.Deadline}
	err = w.trip(ctx, &trip, func(ctx context.Context) error {
		label, err = w.store.Forgotten(ctx, r)
		return err
	})
	return label, err
}

func (w *wrapped) CheckServers(ctx context.Context, r *CheckRequest) error {
	trip := Trip{Kind: KindCheck, Keys: 1, Deadline: r.Deadline}
	r.Servers = nil // the trip may be refused
	return w.trip(ctx, &trip, func(ctx context.Context) error { return w.store.CheckServers(ctx, r) })
}

// The calls below ask no server: they are no trips. The store inside has the method of a
// caller that has found it by [As].

func (w *wrapped) Report() Report               { return w.store.Report() }
func (w *wrapped) Together(keys []TakeKey) bool { return w.store.(Atomic).Together(keys) }
func (w *wrapped) ServerOf(key string) string   { return w.store.(Placer).ServerOf(key) }
func (w *wrapped) Keeps() bool                  { return w.store.(Local).Keeps() }
func (w *wrapped) Bind(Store, *TakeKey) Quota   { return nil }
