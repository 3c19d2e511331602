//go:build unix

package servertest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Suspend stops all threads of p until [Continue]. On Linux no thread runs any more
// when Suspend returns: on a busy machine the signal alone leaves some at work for
// a while.
func Suspend(p *os.Process) error {
	return await(func() error {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return fmt.Errorf("%w: %w", errExited, err)
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			// The state comes after the name, which stands in parentheses.
			stat, _ := os.ReadFile(thread)
			_, state, there := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
			if there && !bytes.ContainsAny(state[:1], "TtZX") {
				return fmt.Errorf("%s: the state is %s", thread, state[:1])
			}
		}
		return nil
	})
}

// Continue ends a [Suspend].
func Continue(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
