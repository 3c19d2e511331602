package redis

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// run runs a script and returns its answer, by the deadline.
func (s *Store) run(ctx context.Context, deadline time.Time, sc redisscript.Script, keys []string, p program) (any, error) {
	ctx, cancel, err := s.start(ctx, deadline)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.ask(ctx, sc, keys, p)
}

// count runs a script that counts, and that does nothing when the deadline has
// passed by the server's clock. Where it has passed there and not here, what was
// thought of that clock was wrong, nothing was counted, and the call is sent once
// more. timeOf is the server's time in an answer, and whether it was too late.
func (s *Store) count(ctx context.Context, deadline time.Time, sc redisscript.Script, keys []string, p program, timeOf func(any) (micro int64, late bool)) (any, error) {
	ctx, cancel, err := s.start(ctx, deadline)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if s.anyTime {
		return s.ask(ctx, sc, keys, p)
	}
	deadline, _ = ctx.Deadline()
	clock := s.clock(keys[0])
	for again := false; ; again = true {
		p.by(clock.due(deadline))
		sent := time.Now()
		answer, err := s.ask(ctx, sc, keys, p)
		if err != nil {
			return nil, err
		}
		switch micro, late := timeOf(answer); {
		case late:
			s.late.Add(1)
			clock.behind(sent, micro)
			if again || !time.Now().Before(deadline) {
				return nil, fmt.Errorf("%s: the call came after its deadline, and nothing was counted", s)
			}
			continue
		case micro > 0:
			clock.heard(sent, micro)
		}
		return answer, nil
	}
}

// start begins a call that has not ended yet.
func (s *Store) start(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		return nil, nil, fmt.Errorf("%s: the deadline had passed before the call", s)
	}
	ctx, cancel := s.until(ctx, deadline)
	return ctx, cancel, nil
}

func (s *Store) ask(ctx context.Context, sc redisscript.Script, keys []string, p program) (any, error) {
	reply, _, err := s.server.Run(ctx, sc, keys, []byte(p))
	switch {
	case err == nil:
		return reply, nil
	case strings.Contains(err.Error(), "ABACUS full"):
		return nil, fmt.Errorf("%s: %w", s, backend.ErrMaxCount)
	case strings.Contains(err.Error(), "ABACUS stale"):
		return nil, fmt.Errorf("%s: %w", s, backend.ErrStaleLabel)
	}
	return nil, s.server.Failed(ctx, err)
}

// clock is the clock of the server that holds a key. Adjacent slots of a Cluster
// are mostly on one server: where they are not, what is thought of one clock is
// mended by the next answer of the other.
func (s *Store) clock(key string) *serverTime {
	if len(s.clocks) == 1 {
		return &s.clocks[0]
	}
	return &s.clocks[slot(key[1:strings.IndexByte(key, '}')])*len(s.clocks)/slots]
}

// odd is an answer that a script of this store does not give.
func (s *Store) odd(what any) error {
	return fmt.Errorf("%s: an unexpected answer of type %T", s, what)
}

// foreign is the error of what this store did not write.
func (s *Store) foreign() error { return s.server.Failed(context.Background(), redisscript.ErrForeign) }
