package redis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed root.lua
var rootLua string

//go:embed before.lua
var beforeLua string

//go:embed find.lua
var findLua string

//go:embed change.lua
var changeLua string

//go:embed take.lua
var takeLua string

//go:embed do.lua
var doLua string

// script is what the server runs, and its name there.
type script struct{ text, sha string }

func newScript(parts ...string) script {
	text := fmt.Sprintf("local BIAS = %d\n%s", int64(bias*perBucket), strings.Join(parts, "\n"))
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

// What few calls need is made only when it is needed: a function costs time even
// if it is not called.
var (
	slowly     = "local function slowly()\n" + changeLua + "\nreturn change, bundle, rewrite\nend"
	takeScript = newScript(rootLua, findLua, slowly, takeLua)
	doScript   = newScript(rootLua, beforeLua, slowly, doLua)
)

// once is a command that must not be sent again: after an answer that got lost
// it would count twice, or be denied the place that it took itself.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// run runs a script and returns its answer, by the deadline.
func (s *Store) run(ctx context.Context, deadline time.Time, sc script, keys []string, p program) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		return nil, fmt.Errorf("%s: the deadline had passed before the call", s)
	}
	ctx, cancel := s.until(ctx, deadline)
	defer cancel()
	reply, err := s.eval(ctx, "evalsha", sc.sha, keys, p)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		// A fresh server. Nothing was run; with its text the script is there.
		reply, err = s.eval(ctx, "eval", sc.text, keys, p)
	}
	if err != nil {
		var answered redis.Error
		if s.cluster != nil && !errors.As(err, &answered) {
			// A client looks for the master that took over when it tries again,
			// which it must not do with these commands.
			s.cluster.ReloadState(context.WithoutCancel(ctx))
		}
		return nil, s.explain(err)
	}
	return reply, nil
}

func (s *Store) eval(ctx context.Context, verb, text string, keys []string, p program) (any, error) {
	args := make([]any, 0, 4+len(keys))
	args = append(args, verb, text, len(keys))
	for _, key := range keys {
		args = append(args, key)
	}
	args = append(args, []byte(p))
	cmd := redis.NewCmd(ctx, args...)
	if err := s.client.Process(ctx, once{cmd}); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// explain makes of an error one that names the store and says what is wrong.
func (s *Store) explain(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "ABACUS full"):
		return fmt.Errorf("%s: the hits of this key would exceed 2^53-1", s)
	case strings.Contains(text, "ABACUS damaged"), redis.HasErrorPrefix(err, "WRONGTYPE"), strings.Contains(text, "WRONGTYPE"):
		return fmt.Errorf("%s: what is stored for this key was not written by this store: %w", s, err)
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return fmt.Errorf("%s: no answer in time: %w", s, err)
	}
	return fmt.Errorf("%s: %w", s, err)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// odd is an answer that a script of this store does not give.
func (s *Store) odd(what any) error {
	return fmt.Errorf("%s: an unexpected answer of type %T", s, what)
}
