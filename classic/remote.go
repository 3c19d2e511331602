package classic

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/classic/internal/server"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/loan"
)

// On makes a store on a server. It is for package servers, which users call.
func On(on server.Server, cfg Config) (*Store, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, server: on}
	if scripted, is := on.(server.Scripted); is {
		s.remote = &remote{scripted, cfg.Timeout}
	}
	return s, nil
}

// remote is a server with scripts.
type remote struct {
	server  server.Scripted
	timeout time.Duration
}

//go:embed classic.lua
var preludeLua string

// newScript makes a script. Lua's arguments are the numbers of [remote.run], in
// order.
func newScript(body string) server.Script { return server.Script(preludeLua + body) }

// run runs a script on the state of name and fills c in.
func (r *remote) run(ctx context.Context, sc server.Script, name string, c *call, numbers ...int64) error {
	ctx, cancel := loan.WithTimeout(ctx, r.timeout)
	defer cancel()
	answers, err := r.server.Run(ctx, sc, name, numbers, &c.cost)
	if err != nil {
		return err
	}
	if len(answers) != 3+len(c.facts) {
		return fmt.Errorf("%s: the script's answer has %d numbers, want %d", r.server, len(answers), 3+len(c.facts))
	}
	c.allowed = answers[0] == 1
	c.cost.Reads += answers[1]
	c.cost.Writes += answers[2]
	copy(c.facts[:], answers[3:])
	return nil
}

// usage is the memory of the values under names on a server.
func (s *Store) usage(ctx context.Context, names []string) (sum int64, err error) {
	for len(names) > 0 && err == nil {
		some := names[:min(1000, len(names))]
		names = names[len(some):]
		var n int64
		n, err = s.usageOf(ctx, some)
		sum += n
	}
	return sum, err
}

func (s *Store) usageOf(ctx context.Context, names []string) (int64, error) {
	ctx, cancel := loan.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return s.server.Usage(ctx, names)
}

// storeError is an error of the store. Its text names the event and not the
// feature, which may be someone's address: a server may repeat its arguments
// in an error.
type storeError struct {
	kind string
	key  counter.Key
	err  error
}

func (e *storeError) Error() string {
	text, _, cut := strings.Cut(e.err.Error(), ", with args")
	if cut {
		text += "..."
	}
	text = strings.ReplaceAll(text, tag(e.key), "{...}")
	return fmt.Sprintf("classic: %s: event %q: %s", e.kind, e.key.Event, text)
}

func (e *storeError) Unwrap() error { return e.err }

// Is makes every storeError a [counter.ErrStore].
func (e *storeError) Is(target error) bool { return target == counter.ErrStore }
