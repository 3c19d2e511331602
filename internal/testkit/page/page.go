// Package page has the parts that the pages of the test programs share: tables,
// numbers, and on which machine and of which versions a page is.
package page

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// Table writes rows of cells, the first being the head.
func Table(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// Thousands is n with a comma after each three digits.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Machine is the kind of machine on which this program runs.
func Machine() string {
	model := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo") // elsewhere the architecture must do
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), model, runtime.GOOS)
}

// Versions are the versions of Go, of the servers and of this library.
func Versions() string {
	all := []string{runtime.Version()}
	for _, command := range [][]string{{"memcached", "-V"}, {"redis-server", "--version"}, {"git", "describe", "--always", "--dirty"}} {
		out, err := exec.Command(command[0], command[1:]...).Output()
		if err != nil {
			continue // nothing to tell
		}
		text := strings.TrimSpace(string(out))
		switch command[0] {
		case "redis-server":
			text, _, _ = strings.Cut(text, " sha=")
		case "git":
			text = "this library at " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}
