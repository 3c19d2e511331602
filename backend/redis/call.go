package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// look sends a program that may come at any time, and returns the answer, by the deadline.
func (s *sums) look(ctx context.Context, deadline time.Time, p program, keys []string, r request) (any, error) {
	ctx, cancel, err := s.server.Begin(ctx, deadline, s.timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.ask(ctx, p, keys, r)
}

// count sends a program that counts, unless the deadline has passed by the server's
// clock, or latest, if it is not zero: then the error is backend.ErrStaleLabel. If the
// time has passed there and not here, the bound on the server's clock was wrong,
// nothing was counted, and the call is sent once more. timeOf returns the server's time
// in an answer, and whether the call came too late.
func (s *sums) count(ctx context.Context, deadline, latest time.Time, p program, keys []string, r request, timeOf func(any) (micro int64, late bool)) (any, error) {
	ctx, cancel, err := s.server.Begin(ctx, deadline, s.timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	deadline, _ = ctx.Deadline()
	ages := !latest.IsZero() && latest.Before(deadline) // the label is too old before the call is late
	if ages {
		deadline = latest
		if !time.Now().Before(latest) {
			return nil, backend.ErrStaleLabel
		}
	}
	if s.anyTime {
		return s.ask(ctx, p, keys, r)
	}
	clock := s.clock(keys[0])
	for again := false; ; again = true {
		r.setDeadline(clock.at(deadline))
		sent := time.Now()
		r.setTime(clock.wants(sent))
		answer, err := s.ask(ctx, p, keys, r)
		if err != nil {
			return nil, err
		}
		micro, late := timeOf(answer)
		if !late {
			if micro > 0 {
				clock.learn(sent, micro)
			}
			return answer, nil
		}
		s.tooLate.Add(1)
		clock.correct(sent, micro)
		switch {
		case !again && time.Now().Before(deadline):
			continue
		case ages:
			return nil, backend.ErrStaleLabel
		}
		return nil, fmt.Errorf("%s: the call came after its deadline, and nothing was counted", s)
	}
}

// ask sends a program, and explains the error.
func (s *sums) ask(ctx context.Context, p program, keys []string, r request) (any, error) {
	reply, err := s.run(ctx, p, keys, r)
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

// unheard takes back the hits of a call in a pipeline that was answered after its caller
// had gone.
func (s *sums) unheard(ctx context.Context, c *call) {
	if f := c.program.function; f != takeScript.function && f != doScript.function {
		return
	}
	of, r := outcomeOf(c.Val()), slices.Clone(c.argument)
	switch {
	case of == notCounted:
	case of == tooLate:
		s.tooLate.Add(1)
	case r.takeBack(of):
		s.answered.Add(1)
		if answer, err := s.run(ctx, c.program.freeing(), c.keys, r); err == nil && outcomeOf(answer) == counted {
			s.takenBack.Add(1)
		} else {
			s.notTaken.Add(1)
		}
	}
}

// clock returns the clock of the server that holds a key. Adjacent slots of a Cluster
// are mostly on the same server: if not, a bound that was learnt from the
// clock of the first server is corrected by the next answer of the second.
func (s *sums) clock(key string) *serverTime {
	if len(s.clocks) == 1 {
		return &s.clocks[0]
	}
	return &s.clocks[redisscript.Slot(key[1:strings.IndexByte(key, '}')])*len(s.clocks)/redisscript.Slots]
}
