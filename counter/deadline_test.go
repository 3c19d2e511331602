package counter_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// stoppingStore is a plainStore that answers each trip after a while, and no
// trip after it has stopped.
type stoppingStore struct {
	*plainStore
	each  time.Duration // time of a trip
	stops atomic.Int64  // trips before the stop
}

var errStopped = errors.New("stopping: no answer by the deadline")

func (s *stoppingStore) Do(ctx context.Context, op *backend.Request) error {
	var late <-chan time.Time
	if !op.Deadline.IsZero() {
		late = time.After(time.Until(op.Deadline))
	}
	var answer <-chan time.Time // never ready on a stopped store
	if s.stops.Add(-1) >= 0 {
		answer = time.After(s.each)
	}
	for i := range op.Add {
		op.Add[i].Count = 0
	}
	select {
	case <-answer:
		return s.plainStore.Do(ctx, op)
	case <-late:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// twenty returns an Ask for each of twenty keys.
func twenty() []counter.Ask {
	asks := make([]counter.Ask, 20)
	for i := range asks {
		asks[i] = counter.Ask{Key: counter.Key{Event: "e", Feature: fmt.Sprint(i)}, N: 1, Limits: limits("5/m")}
	}
	return asks
}

// A Refund of many keys has a single Config.Patience, wherever the store stops:
// all keys are given back side by side, and both trips of a key have the same
// deadline.
func TestARefundOfManyKeysKeepsOnePatience(t *testing.T) {
	// The store of the last round does not stop.
	for answered := range int64(41) {
		t.Run(fmt.Sprintf("%d trips are answered", answered), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &stoppingStore{plainStore: newPlainStore()}
				store.Store = backend.FromDo(store.Do)
				store.stops.Store(1000)
				c := try.To(counter.New(store, counter.Config{Patience: maxTry}))(t)
				v := try.To(c.TakeAll(t.Context(), twenty()...))(t)
				require.True(t, v.Allowed)

				store.each = maxTry / 5
				store.stops.Store(answered)
				began := time.Now()
				err := c.Refund(t.Context(), &v)
				took := time.Since(began)
				if answered == 40 {
					require.NoError(t, err)
					require.Equal(t, 2*store.each, took)
					return
				}
				require.ErrorIs(t, err, counter.ErrStore)
				require.ErrorIs(t, err, errStopped)
				require.Equal(t, maxTry, took)
			})
		})
	}
}

// A TakeAll of many keys, taken one after the other on a store without an
// atomic step, returns within Config.Patience and the time of a taking back,
// wherever the store stops: after three times Settle, if Patience is twice
// Settle.
func TestATakeAllOfManyKeysReturnsWhereverTheStoreStops(t *testing.T) {
	const settle = maxTry
	full := twenty()
	full[19].Limits = limits("1/m")
	for name, row := range map[string]struct {
		asks []counter.Ask
		hits int64 // of the last key, before the call
		each time.Duration
	}{
		"admitted":               {twenty(), 0, settle / 25},
		"the last key is denied": {full, 1, settle / 25},
		"tries are late":         {twenty(), 0, settle / 15},
	} {
		t.Run(name, func(t *testing.T) {
			finished := false
			for answered := int64(0); !finished && answered < 200; answered++ {
				synctest.Test(t, func(t *testing.T) {
					store := &stoppingStore{plainStore: newPlainStore()}
					store.Store = backend.FromDo(store.Do)
					store.stops.Store(1000)
					c := try.To(counter.New(store, counter.Config{Patience: 2 * settle, Settle: settle}))(t)
					if row.hits > 0 {
						require.NoError(t, c.Add(t.Context(), row.asks[19].Key, row.hits))
						time.Sleep(time.Second)
					}
					store.each = row.each
					store.stops.Store(answered)
					began := time.Now()
					v, err := c.TakeAll(t.Context(), row.asks...)
					took := time.Since(began)
					require.LessOrEqual(t, took, 3*settle, "%d trips are answered", answered)
					if finished = store.stops.Load() >= 0; finished {
						return // the store has not stopped
					}
					if err != nil {
						require.ErrorIs(t, err, counter.ErrStore, "%d trips are answered", answered)
						require.False(t, v.Allowed)
					}
				})
			}
			require.True(t, finished, "the store has stopped in every call")
		})
	}
}
