// Package inside has what package limiter needs of a Counter and users do not.
//
// A method of counter.Counter is there for every user, and a package below the
// counter cannot name the counter's types. So the types are parameters of the
// interface, for which package counter has a compile-time check, and package
// counter sets Of.
package inside

import "context"

// Of returns the Counter of a *counter.Counter, with the types of package counter.
var Of func(counter any) any

// Counter is a counter.Counter as package limiter knows it. The methods may be
// called by many goroutines at once.
type Counter[Key, Ask, Verdict any] interface {
	// Recall returns the denial of a TakeAll of the same arguments, if the memory
	// of this process has it: an equal call was denied less than a second ago. The
	// store is not asked, and no one waits. A call for other keys, another n or
	// other limits is not equal. Without such a denial, and for a store in this
	// process, denied is false.
	Recall(asks ...Ask) (v Verdict, denied bool)

	// LastDenial is Recall for a time in which the store does not answer: a denial
	// of a key is believed until its RetryAfter, for as many hits or more under the
	// same limits or lower, whichever other keys were asked with the key. Hits that
	// other processes have given back since are not known. The Verdict has the
	// counts of the denied keys alone. The memory is bounded: a denial among more
	// than 65,536 keys may be lost.
	LastDenial(asks ...Ask) (v Verdict, denied bool)

	// Hits returns the hits of a Verdict of this Counter: an Ask for each key and
	// ladder, with Key, N, Soft and Shared, and the Counter on which they are counted in On.
	Hits(v *Verdict) ([]Ask, error)

	// Redeem has a Verdict with hits refunded without giving anything back, and
	// reports whether no Refund, Settle or Redeem of it or of a copy came before.
	Redeem(v *Verdict) bool

	// GiveBack gives back the hits of the label at, a time in Unix nanoseconds, as
	// Refund does, each by the ladder of On alone. There is at least one.
	GiveBack(ctx context.Context, at int64, hits ...Ask) error

	// Settle is Settle of the keys with n hits each. It reports whether it is done, with
	// an error or without: no Settle, Refund or Redeem can follow.
	Settle(ctx context.Context, v *Verdict, n, used int64) (done bool, err error)

	// Redact is Key.Redact with the Secret of the Counter.
	Redact(key Key) Key

	// LadderSet reports whether the ladder was chosen: by Config.Ladder, next to a
	// Config.Former, or by With. Otherwise the ladder is tiers.Default.
	LadderSet() bool

	// Local reports whether the store is in this process, and whether the store,
	// when full, fails instead of removing hits that still count. See
	// backend.Local.
	Local() (local, keeps bool)

	// ServerOf returns a name of the server that holds the counts of key, or "" if
	// the store has one server or does not say. See backend.Placer.
	ServerOf(key Key) string
}
