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

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// server refuses dials while down, and answers after delay.
type server struct {
	down  atomic.Bool
	delay time.Duration
	dials atomic.Int64
}

func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
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
}

func TestAFailureIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.down.Store(true)
		d := New(s.dial)
		began := time.Now()
		_, err := d.DialContext(t.Context(), "tcp", "a:1")
		require.Equal(t, error(errRefused), err, "the first error is the dial's own")

		_, err = d.DialContext(t.Context(), "tcp", "a:1")
		var remembered *Error
		require.ErrorAs(t, err, &remembered)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, began, remembered.Since)
		pause := remembered.Until.Sub(began)
		require.GreaterOrEqual(t, pause, MinPause)
		require.Less(t, pause, MaxPause)
		require.EqualError(t, err, fmt.Sprintf("dial tcp: connect: connection refused (so since %s, not dialled again before %s)",
			began.Format("15:04:05.000"), remembered.Until.Format("15:04:05.000")))
		require.EqualValues(t, 1, s.dials.Load())

		_, err = d.DialContext(t.Context(), "tcp", "b:1")
		require.Equal(t, error(errRefused), err, "another address")
		_, err = d.DialContext(t.Context(), "unix", "a:1")
		require.Equal(t, error(errRefused), err, "another network")
		require.EqualValues(t, 3, s.dials.Load())

		time.Sleep(pause)
		_, err = d.DialContext(t.Context(), "tcp", "a:1")
		require.Equal(t, error(errRefused), err)
		_, err = d.DialContext(t.Context(), "tcp", "a:1")
		require.ErrorAs(t, err, &remembered)
		require.Equal(t, began, remembered.Since, "since the first failure, not the last")
		require.True(t, remembered.Until.After(began.Add(pause)))

		s.down.Store(false)
		time.Sleep(MaxPause)
		for range 2 {
			conn, err := d.DialContext(t.Context(), "tcp", "a:1")
			require.NoError(t, err)
			conn.Close()
		}
		s.down.Store(true)
		_, err = d.DialContext(t.Context(), "tcp", "a:1")
		require.Equal(t, error(errRefused), err, "a success ends the memory")
	})
}

// After the pause one caller dials, and nobody waits for it.
func TestOneCallerTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{delay: 10 * time.Millisecond}
		s.down.Store(true)
		d := New(s.dial)
		d.DialContext(t.Context(), "tcp", "a:1")
		time.Sleep(MaxPause)
		s.down.Store(false)
		done := make(chan error)
		go func() {
			_, err := d.DialContext(t.Context(), "tcp", "a:1")
			done <- err
		}()
		synctest.Wait()
		for range 100 {
			_, err := d.DialContext(t.Context(), "tcp", "a:1")
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.ErrorContains(t, err, ", and being dialled again)")
		}
		require.NoError(t, <-done)
		require.EqualValues(t, 2, s.dials.Load())
		_, err := d.DialContext(t.Context(), "tcp", "a:1")
		require.NoError(t, err)
	})
}

// A done context is the caller's own business: neither the first dial nor a second
// try is held against the address.
func TestContextsAreTheCallersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{delay: 10 * time.Millisecond}
		d := New(s.dial)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := d.DialContext(gone, "tcp", "a:1")
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, s.dials.Load(), "nothing was dialled")

		short := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			_, err := d.DialContext(ctx, "tcp", "a:1")
			return err
		}
		for range 2 {
			require.ErrorIs(t, short(), context.DeadlineExceeded)
		}
		require.EqualValues(t, 2, s.dials.Load())

		s.down.Store(true)
		d.DialContext(t.Context(), "tcp", "a:1")
		time.Sleep(MaxPause)
		for range 2 {
			require.Equal(t, context.DeadlineExceeded, short(), "the next caller tries")
		}
		_, err = d.DialContext(gone, "tcp", "a:1")
		require.Equal(t, context.Canceled, err, "before what is remembered")
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
		s := &server{delay: time.Millisecond}
		s.down.Store(true)
		d := New(s.dial)
		var back atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		for range 200 {
			wg.Go(func() {
				for {
					_, err := d.DialContext(t.Context(), "tcp", "a:1")
					if err == nil {
						back.Add(int64(time.Since(began)))
						return
					}
					if !errors.Is(err, syscall.ECONNREFUSED) {
						t.Error(err)
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
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
	s := &server{}
	s.down.Store(true)
	d := New(s.dial)
	for i := range 10 * maxAddresses {
		d.DialContext(t.Context(), "tcp", fmt.Sprint("a:", i))
		require.LessOrEqual(t, len(d.failed), maxAddresses)
	}
	require.Len(t, d.failed, maxAddresses)
	_, err := d.DialContext(t.Context(), "tcp", fmt.Sprint("a:", 10*maxAddresses-1))
	require.ErrorAs(t, err, new(*Error), "the last one has its place")
}
