//go:build unix

package measure

import (
	"syscall"
	"time"
)

// CPU is the computing time of all threads of this process so far.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // impossible: RUSAGE_SELF is valid and u is a valid address
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
