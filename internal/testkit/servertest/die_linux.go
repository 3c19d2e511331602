package servertest

import "syscall"

// dieWithUs makes the kernel kill the child when the thread of the start ends: see
// onLastingThread. Cleanups alone would not do: a test binary that runs into
// -timeout, or is killed, runs no cleanup.
func dieWithUs() *syscall.SysProcAttr {
	// A process group of its own: when the shell of a background test ends, the
	// kernel continues all stopped processes of the test's group.
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
