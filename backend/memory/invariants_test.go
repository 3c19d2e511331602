package memory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
)

// requireSound fails unless each key of s can be found and has hits, MaxCount at most, and the
// memory of all keys is what s counts. No call may be under way.
func requireSound(t testing.TB, s *Store) {
	require.NoError(t, sound(s))
}

func sound(s *Store) error {
	spent := int64(0)
	for i := range s.shards {
		table := &s.shards[i].table
		for _, slot := range table.slots {
			switch e := slot.e; {
			case e == nil:
			case table.find(slot.hash, e.key()) != e:
				return fmt.Errorf("key %q cannot be found", e.key())
			case e.rank(byHit) == never:
				return fmt.Errorf("key %q has no buckets and is still there", e.key())
			default:
				spent += e.cost()
				for k := range e.layout.n {
					if sum := e.ring(k).last.sum; sum > backend.MaxCount {
						return fmt.Errorf("key %q: %d hits in tier %d", e.key(), sum, k)
					}
				}
			}
		}
	}
	if got := s.spent.Load(); got != spent || got > s.max {
		return fmt.Errorf("%d buckets are there, %d are counted, %d are allowed", spent, got, s.max)
	}
	return nil
}
