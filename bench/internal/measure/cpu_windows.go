package measure

import (
	"syscall"
	"time"
)

// CPU is the computing time of all threads of this process so far.
func CPU() time.Duration {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		panic(err) // impossible: a constant
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &created, &exited, &kernel, &user); err != nil {
		panic(err) // impossible: a process may ask for its own times
	}
	return spent(kernel) + spent(user)
}

// spent converts a time of 100 ns units. Filetime.Nanoseconds is for dates and subtracts 1970.
func spent(t syscall.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}
