package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/web"
)

// Serve serves a site on an address of this machine until the program is interrupted.
func (e *Env) Serve(address string, site func() (http.Handler, error)) error {
	if !web.Local(address) {
		return Usagef("--listen %s: want localhost or a loopback address, such as localhost:8347: the page asks nobody for a password", address)
	}
	handler, err := site()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", address, err)
	}
	server := http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	fmt.Fprintf(e.Stdout, "Open http://localhost:%s in a browser. Interrupt to end.\n", port)
	select {
	case err := <-failed:
		return err
	case <-e.Ctx.Done(): // the usual end
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err = server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	return err
}
