package main

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/watch"
	"github.com/abacus-go/abacus/cmd/internal/web"
	"github.com/abacus-go/abacus/rules"
)

type watchCmd struct {
	Listen  string    `help:"The address of the page, on this machine only. Port 0 takes a free one. Default: ${default}." default:"localhost:8348" placeholder:"ADDRESS"`
	Store   cli.Store `help:"The store to watch. Nothing is written to it." required:"" env:"ABACUS_STORE" placeholder:"STORE"`
	Rules   string    `help:"The file of the rules by which programs count on the store." required:"" placeholder:"FILE"`
	Status  string    `help:"The page tally.Status of a service that counts on the store: its decisions are in no store." env:"ABACUS_STATUS" placeholder:"URL"`
	Program program   `embed:""`
}

// Help is the part of --help that follows the summary.
func (*watchCmd) Help() string {
	return `Open the address that it prints in a browser. The page shows the conditions of the promise, the servers, the decisions of the service, and a key by name. It reads only.

Prefix and secret, and on memcached skew and settle, are part of the stored key: with another one a key has no hits.

` + cli.StoreHelp + ` $ABACUS_STATUS holds --status likewise.

Example:

    abacus watch --store redis://127.0.0.1:6379/0 --rules rules.yaml \
        --status http://127.0.0.1:9090/limits`
}

// Run serves until the program is interrupted.
func (c *watchCmd) Run(e *cli.Env) error {
	return e.Serve(c.Listen, func() (http.Handler, error) {
		cfg, err := c.config()
		if err != nil {
			return nil, err
		}
		source, err := watch.OfStore(e.Ctx, cfg)
		if err != nil {
			return nil, cli.Usage(errors.Join(err, cfg.Store.Close()))
		}
		site := web.New(e.Ctx, watch.Page)
		source.Add(e.Ctx, site)
		site.Handle("GET /{$}", http.RedirectHandler(watch.Page.Path, http.StatusFound).ServeHTTP)
		return site, nil
	})
}

// config opens the store to watch, without connecting.
func (c *watchCmd) config() (w *watch.Config, err error) {
	if c.Store.Kind == stores.InMemory {
		return nil, errMemory
	}
	w = &watch.Config{File: c.Rules, Limiter: c.Program.limiter()}
	if w.Counter, err = c.Program.counter(); err != nil {
		return nil, cli.Usage(err)
	}
	if c.Status != "" {
		// An error of url.Parse repeats the URL, which may have a password.
		if w.Status, err = url.Parse(c.Status); err != nil || w.Status.Host == "" || w.Status.Scheme != "http" && w.Status.Scheme != "https" {
			return nil, cli.Usagef("--status: want the URL of a page, such as http://127.0.0.1:9090/limits")
		}
	}
	if w.Rules, err = rules.Load(c.Rules); err != nil {
		return nil, err
	}
	w.Store, err = c.Store.OpenReadOnly(cli.Span(time.Second))
	return w, err
}
