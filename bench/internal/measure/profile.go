package measure

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
)

// Profile returns the share of each function in the processor's time during work:
// the function alone, without calls from the function.
func Profile(dir string, work func() error) (map[string]float64, error) {
	path := filepath.Join(dir, "cpu.pprof")
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	err = work()
	pprof.StopCPUProfile()
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	top, err := exec.Command("go", "tool", "pprof", "-top", "-nodefraction=0", "-nodecount=1000", exe, path).Output()
	if err != nil {
		return nil, fmt.Errorf("measure: go tool pprof: %w", err)
	}
	return shares(top), nil
}

// shares reads the lines of pprof -top: flat flat% sum% cum cum% name.
func shares(top []byte) map[string]float64 {
	all := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(top))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || !strings.HasSuffix(fields[1], "%") {
			continue
		}
		if percent, err := strconv.ParseFloat(strings.TrimSuffix(fields[1], "%"), 64); err == nil {
			all[strings.TrimSuffix(strings.Join(fields[5:], " "), " (inline)")] += percent / 100
		}
	}
	return all
}
