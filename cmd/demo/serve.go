package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
)

type serveCmd struct {
	Listen string `help:"The address of the page, on this machine only. Port 0 takes a free one. Default: ${default}." default:"localhost:8347" placeholder:"ADDRESS"`
}

// Help is the part of --help that follows the summary.
func (*serveCmd) Help() string {
	return `Open the address that it prints in a browser. The race and the site count in this process.

Examples:

    demo serve
    demo serve --listen localhost:0`
}

// Run serves until the program is interrupted.
func (c *serveCmd) Run(e *env) error {
	if !serve.Local(c.Listen) {
		return usageError{fmt.Errorf("--listen %s: want localhost or a loopback address, such as localhost:8347: the page asks nobody for a password", c.Listen)}
	}
	site, err := serve.New(e.ctx, serve.Config{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", c.Listen, err)
	}
	server := http.Server{Handler: site, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	fmt.Fprintf(e.stdout, "Open http://localhost:%s in a browser. Interrupt to end.\n", port)
	select {
	case err := <-failed:
		return err
	case <-e.ctx.Done(): // the usual end
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err = server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	return err
}
