package redial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errRefused = error(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)})

// server refuses dials while down, and answers after delay.
type server struct {
	*Dialer
	down  atomic.Bool
	delay time.Duration
	dials atomic.Int64
}

// newServer makes a server that is down, with a Dialer.
func newServer(delay time.Duration) *server {
	s := &server{delay: delay}
	s.down.Store(true)
	s.Dialer = New(func(ctx context.Context, _, _ string) (net.Conn, error) {
		s.dials.Add(1)
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if s.down.Load() {
			return nil, errRefused
		}
		conn, other := net.Pipe()
		other.Close()
		return conn, nil
	})
	return s
}

// try dials an address.
func (s *server) try(ctx context.Context, address string) error {
	conn, err := s.DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
	}
	return err
}

func TestAFailureIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(0)
		try := func(address string) error { return s.try(t.Context(), address) }
		began := time.Now()
		require.Equal(t, errRefused, try("a:1"), "the first error is the dial's own")

		err := try("a:1")
		var remembered *Error
		require.ErrorAs(t, err, &remembered)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, began, remembered.Since)
		pause := remembered.Until.Sub(began)
		require.GreaterOrEqual(t, pause, MinPause)
		require.Less(t, pause, MaxPause)
		require.EqualError(t, err, fmt.Sprintf("dial tcp: connect: connection refused (since %s, not dialled again before %s)",
			began.Format("15:04:05.000"), remembered.Until.Format("15:04:05.000")))
		require.EqualValues(t, 1, s.dials.Load())

		require.Equal(t, errRefused, try("b:1"), "another address")
		_, err = s.DialContext(t.Context(), "unix", "a:1")
		require.Equal(t, errRefused, err, "another network")
		require.EqualValues(t, 3, s.dials.Load())

		time.Sleep(pause)
		require.Equal(t, errRefused, try("a:1"))
		require.ErrorAs(t, try("a:1"), &remembered)
		require.Equal(t, began, remembered.Since, "since the first failure, not the last")
		require.True(t, remembered.Until.After(began.Add(pause)))

		s.down.Store(false)
		time.Sleep(MaxPause)
		for range 2 {
			require.NoError(t, try("a:1"))
		}
		s.down.Store(true)
		require.Equal(t, errRefused, try("a:1"), "a success ends the memory")
	})
}

// After the pause one caller dials, and nobody waits for it.
func TestOneCallerTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(10 * time.Millisecond)
		s.try(t.Context(), "a:1")
		time.Sleep(MaxPause)
		s.down.Store(false)
		done := make(chan error)
		go func() { done <- s.try(t.Context(), "a:1") }()
		synctest.Wait()
		for range 100 {
			err := s.try(t.Context(), "a:1")
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.ErrorContains(t, err, ", and being dialled again)")
		}
		require.NoError(t, <-done)
		require.EqualValues(t, 2, s.dials.Load())
		require.NoError(t, s.try(t.Context(), "a:1"))
	})
}

// A done context is the caller's own business: neither the first dial nor a second
// try is held against the address.
func TestContextsAreTheCallersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(10 * time.Millisecond)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.try(gone, "a:1"), context.Canceled)
		require.Zero(t, s.dials.Load(), "nothing was dialled")

		short := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			return s.try(ctx, "a:1")
		}
		s.down.Store(false)
		for range 2 {
			require.ErrorIs(t, short(), context.DeadlineExceeded)
		}
		require.EqualValues(t, 2, s.dials.Load())

		s.down.Store(true)
		s.try(t.Context(), "a:1")
		time.Sleep(MaxPause)
		for range 2 {
			require.Equal(t, context.DeadlineExceeded, short(), "the next caller tries")
		}
		require.Equal(t, context.Canceled, s.try(gone, "a:1"), "before what is remembered")
	})
}

// The dial may notice a deadline before the context does.
func TestADeadlineThatTheDialNoticesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		d := New(func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials++
			deadline, _ := ctx.Deadline()
			time.Sleep(time.Until(deadline))
			return nil, os.ErrDeadlineExceeded
		})
		for range 2 {
			ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Millisecond))
			d.DialContext(ctx, "tcp", "a:1")
			cancel()
		}
		require.Equal(t, 2, dials)
	})
}

func TestAPanicLeavesNobodyTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := false
		d := New(func(context.Context, string, string) (net.Conn, error) {
			if panics {
				panic("dial")
			}
			return nil, errRefused
		})
		d.DialContext(t.Context(), "tcp", "a:1")
		time.Sleep(MaxPause)
		panics = true
		for range 2 {
			require.Panics(t, func() { d.DialContext(t.Context(), "tcp", "a:1") })
		}
	})
}

// 200 callers ask without a pause for ten seconds: the address is dialled 10 to
// 20 times a second, and used within a tenth of a second when it is back.
func TestACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(time.Millisecond)
		var back atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		for range 200 {
			wg.Go(func() {
				err := s.try(t.Context(), "a:1")
				for ; errors.Is(err, syscall.ECONNREFUSED); err = s.try(t.Context(), "a:1") {
					time.Sleep(5 * time.Millisecond)
				}
				if err != nil {
					t.Error(err)
				}
				back.Add(int64(time.Since(began)))
			})
		}
		time.Sleep(10 * time.Second)
		dials := s.dials.Load() - 200 // all dial until the first has failed
		s.down.Store(false)
		wg.Wait()
		require.Less(t, dials, int64(200))
		require.Greater(t, dials, int64(90))
		require.Less(t, time.Duration(back.Load())/200, 10*time.Second+MaxPause+10*time.Millisecond)
	})
}

func TestMemoryIsBounded(t *testing.T) {
	s := newServer(0)
	for i := range 10 * maxAddresses {
		s.try(t.Context(), fmt.Sprint("a:", i))
		require.LessOrEqual(t, len(s.failed), maxAddresses)
	}
	require.Len(t, s.failed, maxAddresses)
	require.ErrorAs(t, s.try(t.Context(), fmt.Sprint("a:", 10*maxAddresses-1)), new(*Error), "the last one has its place")
}
