package main

import (
	"net/http"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
	"github.com/abacus-go/abacus/cmd/internal/cli"
)

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
