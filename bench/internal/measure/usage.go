package measure

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Free returns the bytes of memory that a new process can have, and -1 on a system
// without the number.
func Free() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return -1
}

// Heap returns the bytes in use after a collection.
func Heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Parallel calls hit for 0 to n-1, from some goroutines, and returns the time spent
// and the number of allocated objects. The part of each goroutine is a run of
// adjacent calls.
func Parallel(n, goroutines int, hit func(i int) error) (spent time.Duration, mallocs uint64, err error) {
	failed := make(chan error, goroutines)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for g := range goroutines {
		go func() {
			for i := g * n / goroutines; i < (g+1)*n/goroutines; i++ {
				if err := hit(i); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range goroutines {
		if e := <-failed; err == nil {
			err = e
		}
	}
	spent = time.Since(start)
	runtime.ReadMemStats(&after)
	return spent, after.Mallocs - before.Mallocs, err
}

// GoingOn returns a clock that goes, and never comes to midnight. The clock is for
// callers with a patience that a busy machine keeps: a late call is an error.
func GoingOn() func() time.Time {
	first, began := time.Date(2026, 3, 2, 10, 20, 30, 0, time.UTC), time.Now()
	return func() time.Time { return first.Add(time.Since(began)) }
}
