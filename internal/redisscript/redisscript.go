// Package redisscript sends commands that count to a Redis server, a master behind
// Sentinel or a Cluster: each at most once, by a deadline, and a script with its text
// only where the server does not know the script.
package redisscript

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/internal/loan"
)

// Server is a server, by its client. A Server is safe for use by many goroutines at once.
type Server struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil: one server holds all keys
	name    string
}

// On makes a Server of a client; closing the client is left to the owner. On
// refuses a client that ignores deadlines once the client waits for an answer, and
// a client with a rule of its own for spreading keys, such as a Ring.
func On(client redis.UniversalClient) (*Server, error) {
	s := &Server{client: client}
	missing, deadlines := false, false
	switch c := client.(type) {
	case *redis.Client:
		if missing = c == nil; !missing {
			deadlines, s.name = c.Options().ContextTimeoutEnabled, c.Options().Addr
		}
	case *redis.ClusterClient:
		if missing = c == nil; !missing {
			deadlines, s.name, s.cluster = c.Options().ContextTimeoutEnabled, "cluster "+strings.Join(c.Options().Addrs, ","), c
		}
	case nil:
		missing = true
	default:
		return nil, fmt.Errorf("a client of type %T, want *redis.Client or *redis.ClusterClient", client)
	}
	switch {
	case missing:
		return nil, errors.New("the client is nil")
	case !deadlines:
		return nil, errors.New("the client ignores deadlines, set ContextTimeoutEnabled in its options")
	}
	return s, nil
}

// String is the server's address, without a password.
func (s *Server) String() string { return "redis: " + s.name }

// Client returns the client that [On] was given.
func (s *Server) Client() redis.UniversalClient { return s.client }

// Cluster returns the client of a Cluster, which spreads keys over servers by their hash
// slots; nil if one server holds all keys.
func (s *Server) Cluster() *redis.ClusterClient { return s.cluster }

// Begin returns the context of a call with a deadline, without a deadline by a timeout
// from now. The error is that of a call that has ended already.
func (s *Server) Begin(ctx context.Context, deadline time.Time, timeout time.Duration) (context.Context, context.CancelFunc, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if deadline.IsZero() {
		deadline = time.Now().Add(timeout)
	} else if !time.Now().Before(deadline) {
		return nil, nil, fmt.Errorf("%s: the deadline had passed before the call", s)
	}
	ctx, cancel := loan.WithDeadline(ctx, deadline)
	return ctx, cancel, nil
}

// Once is a command that must not be sent again: after a lost answer the command
// would count twice, or be denied the place taken by the first execution.
type Once struct{ *redis.Cmd }

// NoRetry tells the client not to send the command again.
func (Once) NoRetry() bool { return true }

// Script is a Lua program and its name on the server. [New] makes a Script.
type Script struct{ text, sha string }

// New makes a Script of its text.
func New(text string) Script {
	return Script{text, fmt.Sprintf("%x", sha1.Sum([]byte(text)))}
}

// Text returns the program.
func (s Script) Text() string { return s.text }

// Name returns the SHA-1 by which the server finds a known script.
func (s Script) Name() string { return s.sha }

// Run runs a script on keys and returns the answer and the number of round trips: one,
// but for a server that does not know the script yet. The error is the client's;
// [Server.Failed] explains the error.
func (s *Server) Run(ctx context.Context, sc Script, keys []string, args ...any) (reply any, trips int64, err error) {
	cmd := Command(ctx, "evalsha", sc.sha, keys, args...)
	if err = s.client.Process(ctx, cmd); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return cmd.Val(), 1, err
	}
	// A fresh server. Nothing was run; with its text the script is there.
	cmd = Command(ctx, "eval", sc.text, keys, args...)
	err = s.client.Process(ctx, cmd)
	return cmd.Val(), 2, err
}

// Command returns the command that runs a program on keys: verb is evalsha, eval or fcall.
func Command(ctx context.Context, verb, program string, keys []string, args ...any) Once {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, program, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return Once{cmd}
}

// foreign is the error of a script for a stored value of a foreign form. For a
// value of another type Redis has an error of its own.
const foreign = "ABACUS foreign"

// ErrForeign is the same error for callers that find a foreign value without a
// script.
var ErrForeign = errors.New(foreign)

// place matches the name of a script and the line in it, which a server adds to an error
// inside of the script. Redis 7 and Valkey add them at the end, older servers at the beginning.
var place = regexp.MustCompile(`^ERR Error running script \(call to f_\w+\): (@user_script: ?\d+: )+-?| script: \w+, on @\S+$|\s+$`)

// brief is an error without the place.
type brief struct{ error }

func (b brief) Error() string { return place.ReplaceAllString(b.error.Error(), "") }
func (b brief) Unwrap() error { return b.error }

// Failed makes of an error of a command that was sent once an error with the name
// of the server and the cause. Failed also has a Cluster's client look for the new
// master; by itself the client looks only before a second try.
func (s *Server) Failed(ctx context.Context, err error) error {
	var answered redis.Error
	if s.cluster != nil && !errors.As(err, &answered) {
		s.cluster.ReloadState(context.WithoutCancel(ctx))
	}
	var timeout net.Error
	switch text := err.Error(); {
	// A program stumbles over a value where the program does not look at each number.
	case strings.Contains(text, foreign), strings.Contains(text, "WRONGTYPE"),
		strings.HasPrefix(text, "ERR user_script:"), strings.HasPrefix(text, "ERR user_function:"):
		return fmt.Errorf("%s: what is stored for this key was not written by this store: %w", s, brief{err})
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s: no answer in time: %w", s, err)
	}
	return fmt.Errorf("%s: %w", s, brief{err})
}
