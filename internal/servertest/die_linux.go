package servertest

import "syscall"

// dieWithUs makes the kernel kill the child when the thread that started it
// ends: see onLastingThread. Cleanups alone would not do: a test binary that
// runs into -timeout, or is killed, runs none.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
