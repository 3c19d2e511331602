package counter

import (
	"fmt"
	"slices"
)

// MaxKeys is the largest number of keys of a [Counter.TakeAll] or
// [Counter.PeekAll].
const MaxKeys = 100

// Ask is a key of a [Counter.TakeAll], with hits and limits.
type Ask struct {
	Key    Key
	N      int64 // hits of the key: 0 to MaxCount; 0 counts nothing, and is denied only if a window holds more hits than Max already
	Limits Limits

	// UpTo takes as many of N hits as there is room for, at least one: a TakeAll that
	// is admitted may count fewer than N, see [Verdict.N]. All keys with hits must have
	// UpTo and the same N, and all count the same number, the room of the limit that
	// leaves least; soft and charged keys count that number too. In a PeekAll,
	// Remaining is the rest after these hits. A Charge ignores UpTo.
	//
	// A denial is that of a call for one hit. If fewer than N hits are counted,
	// RetryAfter is the time until one more has room, without other hits, and costs a
	// Peek.
	UpTo bool

	// On is the Counter by whose ladder the key is counted: a result of
	// [Counter.With] of the called Counter. Default: the called Counter.
	On *Counter

	// Soft asks for a judgement that denies no one. The hits of a soft key are
	// counted where the hits of all other keys are admitted and the soft key has
	// room. A State of the Verdict reports whether the soft key has room. So a soft key
	// reports the share of denials that its limits would have if enforced. A soft key
	// is counted apart from the same key that is enforced, unless it is Shared. On a
	// store without an atomic step for all keys, soft keys are taken after the other
	// keys, at the cost of another round trip. A soft key whose store fails then is
	// missing in the Verdict, and fails no call. A call of soft keys alone is always
	// admitted; its flat fields describe no limit.
	Soft bool

	// Shared counts a soft key on the counts of the same key that is enforced: when
	// the limits are enforced later, or no longer, no count is lost. The key may
	// then be in the call only once. Shared means nothing without Soft.
	Shared bool

	// Charge counts the hits of the key whatever its limits, after all other keys
	// are admitted: a [Counter.Charge] within a TakeAll. The limits never deny the
	// call, and the flat fields of the Verdict do not describe them. All or nothing
	// holds here too: if other keys deny the call, nothing is charged.
	//
	// The States of an admitted call include the hits. A RetryAfter above 0 reports
	// that the limit is over, and is the time until it no longer is, without other
	// hits; to find it out costs a Peek. In a denied call RetryAfter is 0. In a
	// PeekAll it is the time until N hits have room. A soft key is not charged.
	Charge bool

	place   uint8 // in the call, of the first ask for the key
	unknown bool  // in a Verdict: a soft key that was not judged

	together int64 // calls of a batch, each for N hits; 0: no batch

	// Held are hits that the store does not count, judged as if the store counted
	// them: Held[i] hits, zero or more, in the window of Limits[i]. All numbers
	// of the Verdict are of Limits, and Remaining is the rest after Held. If Held
	// alone leaves no room, the call is denied without asking the store, with a
	// RetryAfter of [Never], since only the caller knows when Held ends. Default:
	// nil, no such hits.
	Held []int64
}

func (a *Ask) check() error {
	if err := a.Key.check(); err != nil {
		return err
	}
	if err := a.Limits.check(); err != nil {
		return fmt.Errorf("%w, event %q", err, a.Key.Event)
	}
	return a.checkHits()
}

// checkHits checks the parts of a that are joined when a key is given twice.
func (a *Ask) checkHits() error {
	if a.N < 0 || a.N > MaxCount {
		return fmt.Errorf("counter: n is %d, want 1 to %d, event %q", a.N, int64(MaxCount), a.Key.Event)
	}
	if a.Held == nil {
		return nil
	}
	if len(a.Held) != len(a.Limits) {
		return fmt.Errorf("counter: Ask.Held has %d numbers, want one for each of %d limits, or nil, event %q", len(a.Held), len(a.Limits), a.Key.Event)
	}
	for i, held := range a.Held {
		if held < 0 || held > MaxCount {
			return fmt.Errorf("counter: Ask.Held[%d] is %d, want 0 to %d, event %q", i, held, int64(MaxCount), a.Key.Event)
		}
	}
	return nil
}

// heldIn returns the hits held in the window of a limit.
func (a *Ask) heldIn(limit Limit) (held int64) {
	for i := range a.Held {
		if a.Limits[i] == limit {
			held = max(held, a.Held[i])
		}
	}
	return held
}

// merge appends asks to merged, which is empty: each key once, with all hits and
// limits given for the key. charge charges all keys that are not soft. mixed reports
// whether a key is there in two ways, and may be the same stored key.
func merge(merged, asks []Ask, charge bool) (_ []Ask, mixed bool) {
next:
	for i := range asks {
		merged = append(merged, asks[i])
		ask := &merged[len(merged)-1]
		ask.place, ask.Charge, ask.Shared = uint8(i), (ask.Charge || charge) && !ask.Soft, ask.Shared && ask.Soft
		for j := range len(merged) - 1 {
			m := &merged[j]
			switch {
			case m.Key != ask.Key:
			case m.On == ask.On && m.Soft == ask.Soft && m.Shared == ask.Shared && m.Charge == ask.Charge:
				m.join(ask)
				merged = merged[:len(merged)-1]
				continue next
			default:
				mixed = true
			}
		}
	}
	return merged, mixed
}

// join adds the hits and the limits of b, for the same key, to a.
func (a *Ask) join(b *Ask) {
	if a.Held != nil || b.Held != nil {
		held := make([]int64, len(a.Limits)+len(b.Limits))
		copy(held, a.Held)
		copy(held[len(a.Limits):], b.Held)
		a.Held = held
	}
	a.N += b.N // each up to MaxCount; check refuses a sum beyond
	a.Limits = slices.Concat(a.Limits, b.Limits)
}
