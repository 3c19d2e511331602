package servertest

import "syscall"

// dieWithUs makes the kernel kill the child when the thread that started it
// ends: see onLastingThread. Cleanups alone would not do: a test binary that
// runs into -timeout, or is killed, runs none.
func dieWithUs() *syscall.SysProcAttr {
	// A process group of its own: when the shell ends that has put the tests into
	// the background, the kernel lets all that is stopped in theirs go on.
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
