package backendtest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// mistake is an error if a case of the suite breaks the caller's side of the
// contract.
func mistake(op *backend.Request) error {
	if op.Ladder.Len() == 0 {
		return errors.New("the suite: no ladder")
	}
	if err := badKey(op.Key); err != nil {
		return err
	}
	if len(op.Add) > 0 && (op.N == 0 || op.N > backend.MaxCount || op.N < -backend.MaxCount) {
		return fmt.Errorf("the suite: N is %d", op.N)
	}
	seen := map[tiers.Bucket]bool{}
	for _, slot := range op.Add {
		if seen[slot.Bucket] || slot.TTL <= 0 || !tierOf(op.Ladder, slot.Bucket) {
			return fmt.Errorf("the suite: slot %s twice, without a TTL, or of no tier of %s", slot.Bucket, op.Ladder)
		}
		seen[slot.Bucket] = true
	}
	for _, r := range op.Read {
		if !tierOf(op.Ladder, tiers.Bucket{Width: r.Width}) {
			return fmt.Errorf("the suite: a span of width %s, of no tier of %s", r.Width, op.Ladder)
		}
	}
	if op.N <= 0 || len(op.Add) == 0 {
		return nil
	}
	// An addition names the buckets of all tiers that hold one instant, an addition
	// into the past of those tiers that are kept for so long.
	finest := op.Add[0].Bucket
	for _, slot := range op.Add {
		if slot.Width < finest.Width {
			finest = slot.Bucket
		}
	}
	left := 0
	for i, b := range op.Ladder.Buckets(finest.Start()) {
		if b.Width < finest.Width && op.Age > op.Ladder.At(i).Keep && !slices.ContainsFunc(op.Add, func(slot backend.Slot) bool {
			at := slices.IndexFunc(op.Ladder.Tiers(), func(t tiers.Tier) bool { return t.Width == slot.Width })
			return op.Ladder.At(at).Keep == op.Ladder.At(i).Keep
		}) {
			left++
			continue
		}
		if !seen[b] {
			return fmt.Errorf("the suite: an addition to %s without %s", finest, b)
		}
	}
	if len(op.Add)+left != op.Ladder.Len() {
		return fmt.Errorf("the suite: an addition of %d slots to a ladder of %d tiers", len(op.Add), op.Ladder.Len())
	}
	return nil
}

func tierOf(l tiers.Ladder, b tiers.Bucket) bool {
	for i := range l.Len() {
		if l.At(i).Width == b.Width {
			return true
		}
	}
	return false
}

func badKey(key string) error {
	if len(key) < 1 || len(key) > 200 {
		return fmt.Errorf("the suite: a key of %d bytes", len(key))
	}
	for i := range len(key) {
		if b := key[i]; b <= ' ' || b > '~' || b == '{' || b == '}' {
			return fmt.Errorf("the suite: key %q", key)
		}
	}
	return nil
}
