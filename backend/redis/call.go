package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// ask sends a program, and returns the answer, by the deadline. A program that counts
// does nothing once the deadline has passed by the server's clock, or latest, if it is
// not zero: then the error is backend.ErrStaleLabel. If the time has passed there and not
// here, the bound on the server's clock was wrong, nothing was counted, and the call is
// sent once more.
func (s *sums) ask(ctx context.Context, deadline, latest time.Time, p program, keys []string, r request) (any, error) {
	ctx, cancel, err := s.server.Begin(ctx, deadline, s.timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	deadline, _ = ctx.Deadline()
	ages := p.counts && !latest.IsZero() && latest.Before(deadline) // the label is too old before the call is late
	if ages {
		deadline = latest
		if !time.Now().Before(latest) {
			return nil, backend.ErrStaleLabel
		}
	}
	clock := s.clock(keys[0])
	for again := false; ; again = true {
		sent := time.Now()
		if p.counts && !s.anyTime {
			r.setDeadline(clock.at(deadline))
			r.setTime(clock.wants(sent))
		}
		answer, err := s.run(ctx, p, keys, r)
		if err != nil {
			return nil, s.failed(ctx, err)
		}
		micro, late := p.timeIn(answer)
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

// run sends a program and returns the answer: one round trip, but for a server that does
// not know the program yet, or that refuses its function. The error is the client's.
func (s *sums) run(ctx context.Context, p program, keys []string, r request) (any, error) {
	if int64(time.Since(epoch)) >= s.refused.Load() {
		reply, err := s.queue.send(ctx, "fcall", p.function, p, keys, r)
		loaded := true
		if isMissing(err) {
			var tidy func()
			tidy, err = s.load(ctx, keys[0])
			if loaded = err == nil; loaded {
				reply, err = s.queue.send(ctx, "fcall", p.function, p, keys, r)
				defer tidy()
			}
		}
		switch {
		case refuses(err):
			s.refused.Store(int64(time.Since(epoch) + refusalKept))
		case isMissing(err), notNow(err), !loaded && answered(err):
			// Nothing was done. Where memory or a replica is missing, a script still peeks and denies.
		default:
			return reply, err
		}
	}
	s.byScripts.Add(1)
	reply, err := s.queue.send(ctx, "evalsha", p.Name(), p, keys, r)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		// A fresh server. Nothing was run; with its text the script is there.
		reply, err = s.queue.send(ctx, "eval", p.Text(), p, keys, r)
	}
	if p.frees && redis.HasErrorPrefix(err, "OOM") {
		// The first write was refused, so nothing was done.
		again, failed := s.queue.send(ctx, "eval", p.freeingText(), p, keys, r)
		if failed == nil || !redis.HasErrorPrefix(failed, "Error compiling script") {
			return again, failed
		}
	}
	return reply, err
}

// send sends a command that runs a program, once: alone, or in a pipeline.
func (q *queue) send(ctx context.Context, verb, name string, p program, keys []string, r request) (any, error) {
	cmd := redisscript.Command(ctx, verb, name, keys, []byte(r))
	size := 96 + len(name) + len(r) // bytes at least
	for _, key := range keys {
		size += 16 + len(key)
	}
	q.mu.Lock()
	if q.trips < maxTrips || size > min(maxSize, q.bytes) || q.closed {
		q.trips++
		q.mu.Unlock()
		defer q.landAlone()
		err := q.client.Process(ctx, cmd)
		return cmd.Val(), err
	}
	c := &call{Cmd: cmd.Cmd, program: p, keys: keys, argument: r, size: size, done: make(chan struct{})}
	c.deadline, _ = ctx.Deadline()
	q.join(c)
	q.mu.Unlock()
	return c.wait(ctx)
}

// failed explains an error of run.
func (s *sums) failed(ctx context.Context, err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "ABACUS full"):
		return fmt.Errorf("%s: %w", s, backend.ErrMaxCount)
	case strings.Contains(text, "ABACUS stale"):
		return fmt.Errorf("%s: %w", s, backend.ErrStaleLabel)
	}
	return s.server.Failed(ctx, err)
}

// unheard takes back the hits of a call in a pipeline that was answered after its caller
// had gone.
func (s *sums) unheard(ctx context.Context, c *call) {
	if !c.program.counts {
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
