// Package page has the parts that the pages of the test programs share:
// numbers, and when, on which machine and of which versions a page is.
package page

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"text/template"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Run describes a run of a program: its time and the versions.
type Run struct {
	Began    time.Time
	Took     time.Duration
	versions string // read at the begin: the checkout may move on meanwhile
}

// Begin returns the Run of a program that begins now.
func Begin() Run { return Run{Began: time.Now(), versions: versions()} }

// End ends the Run.
func (r *Run) End() { r.Took = time.Since(r.Began) }

// Fill fills the text of a page, a template: with the Date of the run, the time that it
// Took, the Machine, the Versions, the Command that does the same again, and other parts
// by their names. In the text n writes a number as [Thousands] does.
func (r *Run) Fill(text, command string, parts map[string]any) string {
	parts["Date"], parts["Took"] = r.Began.UTC().Format("2006-01-02 15:04 UTC"), r.Took.Round(time.Second)
	parts["Machine"], parts["Versions"], parts["Command"] = machine(), r.versions, command
	var b strings.Builder
	page := template.New("page").Option("missingkey=error").Funcs(template.FuncMap{"n": Thousands})
	if err := template.Must(page.Parse(text)).Execute(&b, parts); err != nil {
		panic(err) // a part is missing
	}
	return b.String()
}

// Thousands is a whole number with a comma after each three digits.
func Thousands(n any) string { return message.NewPrinter(language.English).Sprint(n) }

// modelName finds the kind of a processor in the cpuinfo of Linux.
var modelName = regexp.MustCompile(`(?m)^model name\s*: *(.*?) *$`)

// machine is the kind of machine on which this program runs.
func machine() string {
	model := runtime.GOARCH
	text, _ := os.ReadFile("/proc/cpuinfo") // elsewhere the architecture must do
	if found := modelName.FindSubmatch(text); found != nil {
		model = string(found[1])
	}
	return fmt.Sprintf("%d cores of %s, %s", runtime.NumCPU(), model, runtime.GOOS)
}

// versions are the versions of Go, of the servers and of this library.
func versions() string {
	all := []string{runtime.Version()}
	for _, of := range []struct{ before, command string }{
		{"", "memcached -V"}, {"", "redis-server --version"}, {"this library at ", "git describe --always --dirty"},
	} {
		words := strings.Fields(of.command)
		if out, err := exec.Command(words[0], words[1:]...).Output(); err == nil { // else there is nothing to tell
			text, _, _ := strings.Cut(strings.TrimSpace(string(out)), " sha=") // which Redis adds
			all = append(all, of.before+text)
		}
	}
	return strings.Join(all, ", ")
}
