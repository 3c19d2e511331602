// Command demo is for trying abacus: without arguments it shows on one screen what the
// library does; it serves a page on which limiters race, replays a log through the
// counter and checks every decision, compares the library with the limiters of the
// textbooks, and explains the cover of a window. Command abacus is for running it.
//
// The exit status is 0 if all went well; 1 for bad or unreadable input, a failure
// of the store, or output that cannot be written; 2 for a mistake on the command
// line; and 130 for an interrupt. After an error or an interrupt the report has all
// input read until then.
package main

import (
	"embed"
	"net/http"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
	"github.com/abacus-go/abacus/cmd/internal/cli"
)

// commands is the command line.
type commands struct {
	Tour    tourCmd    `cmd:"" default:"1" help:"Show on one screen what the library does (this is the default)."`
	Serve   serveCmd   `cmd:"" help:"Open a page that explains the library in seven pictures."`
	Replay  replayCmd  `cmd:"" help:"Send a log through the counter, the clock being the log's, and check every decision."`
	Compare compareCmd `cmd:"" help:"Send a log through abacus and the textbook limiters, and compare what they admit and cost."`
	Cover   coverCmd   `cmd:"" help:"Show which counts of hours, minutes and seconds, its buckets, a window is added up from."`
}

const description = `Try abacus: at most Max hits in any window of time, added up from a few counts of hours, minutes and seconds. The program to look after a service that runs is "abacus". In a checkout, demo is "go run ./cmd/demo".

Exit status: 0 all went well; 1 bad or unreadable input, a store that failed, or output that cannot be written; 2 a mistake on the command line; 130 interrupted.`

//go:embed reports
var reports embed.FS

func main() {
	cli.Program{
		Name:        "demo",
		Description: description,
		Commands:    &commands{},
		Reports:     reports,
		Elsewhere: map[string]string{
			"check": "abacus check", "inspect": "abacus inspect", "forget": "abacus forget", "erase": "abacus erase", "rules": "abacus rules", "watch": "abacus watch",
		},
	}.Main()
}

type serveCmd struct {
	Listen string `help:"The address of the page, on this machine only. Port 0 takes a free one. Default: ${default}." default:"localhost:8347" placeholder:"ADDRESS"`
}

// Help is the part of --help that follows the summary.
func (*serveCmd) Help() string {
	return `Open the address that it prints in a browser. The race and the site count in this process; a store of yours is watched by abacus watch.

Examples:

    demo serve
    demo serve --listen localhost:0`
}

// Run serves until the program is interrupted.
func (c *serveCmd) Run(e *cli.Env) error {
	return e.Serve(c.Listen, func() (http.Handler, error) { return serve.New(e.Ctx) })
}
