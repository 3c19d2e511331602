//go:build !linux

package servertest

import "syscall"

// dieWithUs is nothing where the kernel has no such service. A server then
// stays behind when the test binary is killed or runs into -timeout.
func dieWithUs() *syscall.SysProcAttr { return nil }
