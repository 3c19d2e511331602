package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/loan"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// run sends a script and returns the answer, by the deadline.
func (s *sums) run(ctx context.Context, deadline time.Time, sc redisscript.Script, keys []string, r request) (any, error) {
	ctx, cancel, err := s.start(ctx, deadline)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.ask(ctx, sc, keys, r)
}

// count sends a script that counts, unless the deadline has passed by the server's
// clock, or latest, if it is not zero: then the error is backend.ErrStaleLabel. If the
// time has passed there and not here, the bound on the server's clock was wrong,
// nothing was counted, and the call is sent once more. timeOf returns the server's time
// in an answer, and whether the call came too late.
func (s *sums) count(ctx context.Context, deadline, latest time.Time, sc redisscript.Script, keys []string, r request, timeOf func(any) (micro int64, late bool)) (any, error) {
	ctx, cancel, err := s.start(ctx, deadline)
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
		return s.ask(ctx, sc, keys, r)
	}
	clock := s.clock(keys[0])
	for again := false; ; again = true {
		r.setDeadline(clock.at(deadline))
		sent := time.Now()
		r.setTime(clock.wants(sent))
		answer, err := s.ask(ctx, sc, keys, r)
		if err != nil {
			return nil, err
		}
		switch micro, late := timeOf(answer); {
		case late:
			s.late.Add(1)
			clock.correct(sent, micro)
			switch {
			case !again && time.Now().Before(deadline):
				continue
			case ages:
				return nil, backend.ErrStaleLabel
			}
			return nil, fmt.Errorf("%s: the call came after its deadline, and nothing was counted", s)
		case micro > 0:
			clock.learn(sent, micro)
		}
		return answer, nil
	}
}

// start returns the context of a call with its deadline, and an error for a call that
// has ended already.
func (s *base) start(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if deadline.IsZero() {
		deadline = time.Now().Add(s.timeout)
	} else if !time.Now().Before(deadline) {
		return nil, nil, fmt.Errorf("%s: the deadline had passed before the call", s)
	}
	ctx, cancel := loan.WithDeadline(ctx, deadline)
	return ctx, cancel, nil
}

func (s *sums) ask(ctx context.Context, sc redisscript.Script, keys []string, r request) (any, error) {
	reply, _, err := s.server.Run(ctx, sc, keys, []byte(r))
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
// had gone. again sends the call with another request.
func (s *sums) unheard(sc redisscript.Script, argument []byte, answer any, again func([]byte) (any, error)) {
	if name := sc.FunctionName(); name != takeScript.FunctionName() && name != doScript.FunctionName() {
		return
	}
	outcome, r := outcomeOf(answer), request(slices.Clone(argument))
	switch {
	case outcome == notCounted:
	case outcome == tooLate:
		s.late.Add(1)
	case r.takeBack(outcome):
		s.unheardCounted.Add(1)
		if answer, err := again(r); err == nil && outcomeOf(answer) == counted {
			s.unheardTaken.Add(1)
		} else {
			s.unheardKept.Add(1)
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
	return &s.clocks[slot(key[1:strings.IndexByte(key, '}')])*len(s.clocks)/slots]
}
