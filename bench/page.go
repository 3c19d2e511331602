package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"
)

// page is docs/reports/bench.md. The prose holds no number: all numbers are in tables.
func page(m *machine, sections []string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `# Benchmarks

This page is written by %s: edits are lost. What the numbers mean, and which goals they reach, is in [where the time goes](../decisions/where-the-time-goes.md).

`, "`make bench-peers`")
	fmt.Fprintf(&text, "| | |\n|---|---|\n")
	for _, row := range m.rows() {
		fmt.Fprintf(&text, "| %s | %s |\n", row[0], row[1])
	}
	text.WriteString(`
Contestants take turns, round after round, in one process: a machine whose speed drifts is unfair to nobody. A cell has the median over the rounds, and behind it the least and the greatest; a ratio is the median of the ratios within each round.
Compare within a section, and not across. Every part asserts at its end that what it counted is right, and fails otherwise. "N" and "2N" are what a limit of N admits in its worst true window.
`)
	for _, section := range sections {
		text.WriteString("\n")
		text.WriteString(strings.TrimRight(section, "\n"))
		text.WriteString("\n")
	}
	return wrap(text.String())
}

// wrap breaks the paragraphs and the list items of page into lines of at most 100
// characters, as in the pages that are written by hand. Line breaks within a
// paragraph do not count. Tables, headings and blocks stay as they are.
func wrap(page string) string {
	var text strings.Builder
	var words []string // of the paragraph so far
	block := false
	for line := range strings.Lines(page) {
		fence := strings.HasPrefix(line, "```")
		prose := !block && !fence && !strings.ContainsAny(line[:1], "\n|#<!")
		block = block != fence
		if !prose || strings.HasPrefix(line, "- ") {
			writeParagraph(&text, words)
			words = nil
		}
		if prose {
			words = append(words, strings.Fields(line)...)
		} else {
			text.WriteString(line)
		}
	}
	writeParagraph(&text, words)
	return text.String()
}

// writeParagraph writes words in lines of at most 100 characters. A list item
// begins with the word "-".
func writeParagraph(text *strings.Builder, words []string) {
	if len(words) == 0 {
		return
	}
	const width = 100
	indent := ""
	if words[0] == "-" {
		indent = "  "
	}
	column := 0
	for i, word := range words {
		long := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+long > width:
			text.WriteString("\n" + indent)
			column = len(indent)
		default:
			text.WriteString(" ")
			column++
		}
		text.WriteString(word)
		column += long
	}
	text.WriteString("\n")
}

// machine describes the hardware and the software of the measurement.
type machine struct {
	facts            [][2]string
	load             string
	began            time.Time
	took             time.Duration
	ticks, lastTicks []float64
}

// peers are the modules of the other limiters.
var peers = []string{
	"github.com/go-chi/httprate", "github.com/go-redis/redis_rate/v10", "github.com/sethvargo/go-limiter", "github.com/throttled/throttled/v2",
	"github.com/ulule/limiter/v3", "golang.org/x/time", "github.com/redis/go-redis/v9", "github.com/bradfitz/gomemcache",
}

// look finds out what there is to know before the first part runs.
func look(o options) (*machine, error) {
	m := &machine{}
	add := func(name, value string) { m.facts = append(m.facts, [2]string{name, value}) }
	command := "make bench-peers"
	if o.size != "full" {
		command = "cd bench && go run . -size " + o.size + "; these numbers are of few rounds, or none that say anything"
	}
	add("command", command)
	add("processor", processor())
	memory := "unknown"
	var kilobytes float64
	if _, err := fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%f kB", &kilobytes); err == nil {
		memory = fmt.Sprintf("%.1f GB", kilobytes*1024/1e9)
	}
	add("memory", memory)
	add("kernel", orUnknown(output("uname", "-srm")))
	add("Go", strings.TrimPrefix(runtime.Version(), "go")+" "+runtime.GOOS+"/"+runtime.GOARCH)
	for _, server := range [][2]string{{"redis-server", "--version"}, {"memcached", "-V"}} {
		version := output(server[0], server[1])
		if version == "" {
			return nil, fmt.Errorf("%s is missing: make servers installs it", server[0])
		}
		add(server[0], firstVersion(version))
	}
	modules, err := exec.Command("go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}"}, peers...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	add("peers and clients", strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(string(modules)), "\n", ", "), "github.com/", ""))
	if commit := output("git", "describe", "--always", "--dirty"); commit != "" {
		add("abacus at", commit)
	}
	return m, nil
}

// processor names the processor of this machine.
func processor() string {
	return fmt.Sprintf("%s, %d cores", orUnknown(field("/proc/cpuinfo", "model name")), runtime.NumCPU())
}

func (m *machine) begin() {
	text, _ := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); len(fields) > 2 {
		m.load = strings.Join(fields[:3], ", ")
	}
	m.began, m.ticks = time.Now(), ticks()
}

func (m *machine) end() { m.took, m.lastTicks = time.Since(m.began), ticks() }

func (m *machine) rows() [][2]string {
	rows := append([][2]string{}, m.facts...)
	rows = append(rows, [2]string{"date", m.began.UTC().Format("2006-01-02 15:04 MST")}, [2]string{"took", m.took.Round(time.Second).String()})
	if m.load != "" {
		rows = append(rows, [2]string{"load average before", m.load})
	}
	if stolen, ok := stolen(m.ticks, m.lastTicks); ok {
		rows = append(rows, [2]string{"processor time that the host took meanwhile", fmt.Sprintf("%.1f %%", 100*stolen)})
	}
	return rows
}

// ticks is the first line of /proc/stat: the time of all processors by what it
// was spent on.
func ticks() (all []float64) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := bytes.Cut(text, []byte("\n"))
	for _, field := range bytes.Fields(line)[min(1, len(bytes.Fields(line))):] {
		var n float64
		if _, err := fmt.Sscan(string(field), &n); err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// stolen is the part of the processors' time that a virtual machine did not
// get: the eighth of the ticks.
func stolen(before, after []float64) (float64, bool) {
	const steal = 7
	if len(before) <= steal || len(after) <= steal {
		return 0, false
	}
	sum := 0.0
	for i := range before[:steal+1] { // the later fields are counted in these fields
		sum += after[i] - before[i]
	}
	if sum <= 0 {
		return 0, false
	}
	return (after[steal] - before[steal]) / sum, true
}

// field is the value of the first line "name: value" of a file.
func field(path, name string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func output(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	return strings.TrimSpace(string(out))
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// firstVersion is the first word that begins with a digit, or v= and a digit.
func firstVersion(text string) string {
	for word := range strings.FieldsSeq(text) {
		word = strings.TrimPrefix(word, "v=")
		if word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return text
}
