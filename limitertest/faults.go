package limitertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/loan"
)

// Fault is a fault of a store. The zero Fault is none.
type Fault struct {
	// Err is the error of a call, and the call counts nothing: a server is down.
	Err error

	// Delay is the time that passes before a call. A call whose context or
	// deadline ends before counts nothing: a server, or a network, that is late.
	Delay time.Duration

	// Lost has a call made and the answer lost: a connection breaks. The caller
	// gets Err, or an error of this package if Err is nil, and a hit of the call
	// stays counted.
	Lost bool

	// Calls is the number of calls with the fault. An Allow is one call on memory
	// and Redis, a Refund one or more. Default: 0, all calls until the next Set.
	Calls int
}

// Faults make stores fail on command. A Limiter takes a store of Wrap for a store
// over a network. The zero Faults do nothing until Set. Many goroutines may use
// Faults at once.
type Faults struct {
	mu   sync.Mutex
	next Fault
}

// Set has a fault happen from now on, instead of the fault set before; the zero
// Fault ends all faults. Calls under way are not affected.
func (f *Faults) Set(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = fault
}

// Wrap returns store with the faults. The result has the atomic step of
// store, but is not Local, even if store is: a Counter on the result has the Skew,
// Patience and memory of denials that stores over a network have.
func (f *Faults) Wrap(store backend.Store) backend.Store {
	s := &faulty{f, store}
	if atomic, is := backend.As[backend.Atomic](store); is {
		return struct {
			*faulty
			takes
		}{s, takes{f, atomic}}
	}
	return s
}

var errLost = errors.New("limitertest: the answer is lost")

// call makes a call, or not. lost: the call was made, and its answer must not be
// seen.
func (f *Faults) call(ctx context.Context, deadline time.Time, do func() error) (lost bool, err error) {
	f.mu.Lock()
	fault := f.next
	switch fault.Calls {
	case 0:
	case 1:
		f.next = Fault{}
	default:
		f.next.Calls--
	}
	f.mu.Unlock()
	if err := wait(ctx, deadline, fault.Delay); err != nil {
		return false, err
	}
	switch {
	case fault.Lost:
		_ = do()
		return true, cmp.Or(fault.Err, errLost)
	case fault.Err != nil:
		return false, fault.Err
	}
	return false, do()
}

// wait returns after delay, or with an error when ctx or the deadline ends.
func wait(ctx context.Context, deadline time.Time, delay time.Duration) error {
	if delay <= 0 {
		return nil
	}
	if own, ok := ctx.Deadline(); !deadline.IsZero() && (!ok || deadline.Before(own)) {
		lent := loan.Of(ctx)
		defer lent.End()
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(lent, deadline, fmt.Errorf("limitertest: no answer in time, after a Delay of %s: %w", delay, os.ErrDeadlineExceeded))
		defer cancel()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// faulty is a store with faults: what every store has.
type faulty struct {
	faults *Faults
	store  backend.Store
}

func (s *faulty) Do(ctx context.Context, r *backend.Request) error {
	forget := func() {
		r.Ordered = false
		for i := range r.Add {
			r.Add[i].Count = 0
		}
	}
	forget() // the call may not be made
	lost, err := s.faults.call(ctx, r.Deadline, func() error { return s.store.Do(ctx, r) })
	if lost {
		forget()
	}
	return err
}

func (s *faulty) Forget(ctx context.Context, r *backend.ForgetRequest) error {
	_, err := s.faults.call(ctx, r.Deadline, func() error { return s.store.Forget(ctx, r) })
	return err
}

func (s *faulty) Forgotten(ctx context.Context, r *backend.ForgetRequest) (label int64, err error) {
	_, err = s.faults.call(ctx, r.Deadline, func() error {
		label, err = s.store.Forgotten(ctx, r)
		return err
	})
	return label, err
}

// CheckServers finds what a Counter would find on the store without faults.
func (s *faulty) CheckServers(ctx context.Context, r *backend.CheckRequest) error {
	r.Servers = nil
	_, err := s.faults.call(ctx, r.Deadline, func() error { return s.store.CheckServers(ctx, r) })
	return err
}

func (s *faulty) Report() backend.Report { return s.store.Report() }

// takes is the atomic step of a store with faults.
type takes struct {
	faults *Faults
	atomic backend.Atomic
}

func (s takes) Take(ctx context.Context, r *backend.TakeRequest) error {
	_, err := s.faults.call(ctx, r.Deadline, func() error { return s.atomic.Take(ctx, r) })
	return err
}

func (s takes) Together(keys []backend.TakeKey) bool { return s.atomic.Together(keys) }
