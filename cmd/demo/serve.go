package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
	"github.com/abacus-go/abacus/rules"
)

type serveCmd struct {
	Listen  string    `help:"The address of the page, on this machine only. Port 0 takes a free one. Default: ${default}." default:"localhost:8347" placeholder:"ADDRESS"`
	Store   storeName `help:"The store to watch. Nothing is written to it." placeholder:"STORE"`
	Rules   string    `help:"The file of the rules by which programs count on the store." placeholder:"FILE"`
	Status  string    `help:"The page tally.Status of a service that counts on the store: its decisions are in no store." placeholder:"URL"`
	Program program   `embed:""`
}

// Help is the part of --help that follows the summary.
func (*serveCmd) Help() string {
	return `Open the address that it prints in a browser. The race and the site count in this process. With --store and --rules the watch shows a real store, and reads only.

Prefix and secret, and on memcached skew and settle, are part of the stored key: with another one a key has no hits.

` + storeHelp + `

$ABACUS_STORE counts only beside --rules, and $ABACUS_STATUS holds --status likewise.

Examples:

    demo serve
    demo serve --listen localhost:0
    demo serve --store redis://127.0.0.1:6379/0 --rules rules.yaml \
        --status http://127.0.0.1:9090/limits`
}

// Run serves until the program is interrupted.
func (c *serveCmd) Run(e *env) error {
	if !serve.Local(c.Listen) {
		return usageError{fmt.Errorf("--listen %s: want localhost or a loopback address, such as localhost:8347: the page asks nobody for a password", c.Listen)}
	}
	watched, err := c.watched()
	if err != nil {
		return err
	}
	if watched != nil {
		defer watched.Store.Close()
	}
	site, err := serve.New(e.ctx, serve.Config{Watched: watched})
	if err != nil {
		return usageError{err}
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

// watched opens the store to watch, without connecting; nil without --rules.
func (c *serveCmd) watched() (*serve.Watched, error) {
	if c.Rules == "" {
		if c.Store.Kind != stores.InMemory || c.Status != "" {
			return nil, usageError{errors.New("--store and --status need --rules: the file of the rules by which the programs count")}
		}
		return nil, nil
	}
	if text := os.Getenv("ABACUS_STORE"); c.Store.Kind == stores.InMemory && text != "" {
		if err := c.Store.UnmarshalText([]byte(text)); err != nil {
			return nil, usageError{fmt.Errorf("$ABACUS_STORE: %w", err)}
		}
	}
	if c.Store.Kind == stores.InMemory {
		return nil, usageError{errors.New("--rules needs --store: a Redis or a memcached, by a URL; a store in memory belongs to its process")}
	}
	w := &serve.Watched{File: c.Rules, Limiter: c.Program.limiter()}
	var err error
	if w.Counter, err = c.Program.counter(); err != nil {
		return nil, usageError{err}
	}
	if text := cmp.Or(c.Status, os.Getenv("ABACUS_STATUS")); text != "" {
		// An error of url.Parse repeats the URL, which may have a password.
		if w.Status, err = url.Parse(text); err != nil || w.Status.Host == "" || w.Status.Scheme != "http" && w.Status.Scheme != "https" {
			return nil, usageError{errors.New("--status: want the URL of a page, such as http://127.0.0.1:9090/limits")}
		}
	}
	if w.Rules, err = rules.Load(c.Rules); err != nil {
		return nil, err
	}
	if w.Store, err = stores.OpenReadOnly(c.Store.Name, time.Second); err != nil {
		return nil, usageError{fmt.Errorf("store %s: %w", c.Store, err)}
	}
	return w, nil
}
