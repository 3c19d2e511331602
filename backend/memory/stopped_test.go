//go:build unix

package memory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/stretchr/testify/require"
)

const stoppedEnv = "ABACUS_MEMORY_STOPPED"

// A process that is stopped again and again, with callers between their clock
// and the store, is over no limit by the labels of its hits.
func TestAStoppedProcess(t *testing.T) {
	if os.Getenv(stoppedEnv) != "" {
		beStopped(t)
		return
	}
	t.Parallel()
	const stops, stopped, running = 6, 450 * time.Millisecond, 120 * time.Millisecond
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), stoppedEnv+"=1")
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	child.Stderr = os.Stderr
	require.NoError(t, child.Start())
	ended := false
	defer func() {
		if !ended {
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	}()
	lines := bufio.NewReader(out)
	for line := ""; line != "running\n"; {
		line, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
	for range stops {
		time.Sleep(running)
		require.NoError(t, child.Process.Signal(syscall.SIGSTOP))
		time.Sleep(stopped)
		require.NoError(t, child.Process.Signal(syscall.SIGCONT))
	}
	time.Sleep(running)
	require.NoError(t, in.Close())
	said, err := io.ReadAll(lines)
	require.NoError(t, err)
	err = child.Wait()
	ended = true
	require.NoError(t, err, "%s", said)
	t.Logf("%s", said)
}

// beStopped hits a few keys from many goroutines until its standard input ends,
// and then looks for a window with more hits than the limit has.
func beStopped(t *testing.T) {
	const keys, callers, ladder = 8, 200, "10ms:200ms"
	limit := per(3, 200*time.Millisecond)
	s := New(Config{})
	var (
		mu       sync.Mutex
		admitted [keys][]time.Time
		again    int
		ended    = make(chan struct{})
		all      sync.WaitGroup
	)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	for i := range callers {
		all.Go(func() {
			take := taking(t, ladder, fmt.Sprint("k", i%keys), time.Now(), limit)
			for {
				select {
				case <-ended:
					return
				default:
				}
				for try := 0; ; try++ {
					take.Now, take.AnyLabel = time.Now(), try > 3
					runtime.Gosched() // most callers are here when the process is stopped
					err := s.Take(context.Background(), take)
					if errors.Is(err, backend.ErrStaleLabel) {
						mu.Lock()
						again++
						mu.Unlock()
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					break
				}
				if take.Allowed {
					mu.Lock()
					admitted[i%keys] = append(admitted[i%keys], take.Now)
					mu.Unlock()
				}
			}
		})
	}
	fmt.Println("running")
	all.Wait()
	for k, hits := range admitted {
		require.Greater(t, len(hits), 10)
		slices.SortFunc(hits, time.Time.Compare)
		for i := int(limit.Max); i < len(hits); i++ {
			if apart := hits[i].Sub(hits[i-int(limit.Max)]); apart <= limit.Per {
				t.Errorf("key %d: %d hits within %s of a limit of %s", k, limit.Max+1, apart, limit)
			}
		}
	}
	fmt.Println(again, "calls were labelled anew")
}
