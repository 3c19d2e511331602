// Package redisscript sends scripts that count to a Redis server, a master
// behind Sentinel or a Cluster: each at most once, by the deadline of its
// context, and with its text only where the server does not know it.
package redisscript

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Server is where scripts run. It is used by many goroutines at once.
type Server struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil: one server holds all keys
	name    string
}

// On makes a Server of a client, which stays its owner's to close. A client that
// ignores deadlines once it waits for an answer is refused, and so is one that
// spreads keys by a rule of its own, such as a Ring.
func On(client redis.UniversalClient) (*Server, error) {
	s := &Server{client: client}
	deadlines := false
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			return nil, errors.New("the client is nil")
		}
		deadlines, s.name = c.Options().ContextTimeoutEnabled, c.Options().Addr
	case *redis.ClusterClient:
		if c == nil {
			return nil, errors.New("the client is nil")
		}
		deadlines, s.name = c.Options().ContextTimeoutEnabled, "cluster "+strings.Join(c.Options().Addrs, ",")
		s.cluster = c
	case nil:
		return nil, errors.New("the client is nil")
	default:
		return nil, fmt.Errorf("a client of type %T, want *redis.Client or *redis.ClusterClient", client)
	}
	if !deadlines {
		return nil, errors.New("the client ignores deadlines, set ContextTimeoutEnabled in its options")
	}
	return s, nil
}

// String is the server's address, without a password.
func (s *Server) String() string { return "redis: " + s.name }

// Client is the one that [On] was given.
func (s *Server) Client() redis.UniversalClient { return s.client }

// Cluster tells whether keys are spread over servers by their hash slots.
func (s *Server) Cluster() bool { return s.cluster != nil }

// Script is what the server runs, and its name there.
type Script struct{ text, sha string }

// New makes a Script of its text.
func New(text string) Script {
	sum := sha1.Sum([]byte(text))
	return Script{text, hex.EncodeToString(sum[:])}
}

// Text is what the server runs.
func (s Script) Text() string { return s.text }

// Name is how the server finds a script that it knows.
func (s Script) Name() string { return s.sha }

// Once is a command that must not be sent again: after an answer that got lost
// it would count twice, or be denied the place that it took itself.
type Once struct{ *redis.Cmd }

// NoRetry is what the client asks before it tries again.
func (Once) NoRetry() bool { return true }

// Run runs a script on keys and returns its answer, and how many round trips
// that took: two where the server did not know the script, otherwise one. The
// error is the client's; [Server.Failed] explains it.
func (s *Server) Run(ctx context.Context, sc Script, keys []string, args ...any) (reply any, trips int64, err error) {
	reply, err = s.eval(ctx, "evalsha", sc.sha, keys, args)
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return reply, 1, err
	}
	// A fresh server. Nothing was run; with its text the script is there.
	reply, err = s.eval(ctx, "eval", sc.text, keys, args)
	return reply, 2, err
}

func (s *Server) eval(ctx context.Context, verb, text string, keys []string, args []any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, text, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	if err := s.client.Process(ctx, Once{cmd}); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// foreign is the error by which a script says that it did not write what is
// stored. Redis has another one for a value of another type.
const foreign = "ABACUS foreign"

// brokenOff is how the error of a script begins that stumbled over what it found,
// where it stopped to look at each number.
const brokenOff = "ERR user_script:"

// ErrForeign is that error, for who finds it out without a script.
var ErrForeign = errors.New(foreign)

// Failed makes of an error of a command that was sent once an error that names
// the server and says what is wrong. It has a Cluster's client look for the
// master that took over, which it does by itself only when it tries again.
func (s *Server) Failed(ctx context.Context, err error) error {
	var answered redis.Error
	if s.cluster != nil && !errors.As(err, &answered) {
		s.cluster.ReloadState(context.WithoutCancel(ctx))
	}
	var timeout net.Error
	switch text := err.Error(); {
	case strings.Contains(text, foreign), strings.Contains(text, "WRONGTYPE"), strings.HasPrefix(text, brokenOff):
		return fmt.Errorf("%s: what is stored for this key was not written by this store: %w", s, err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s: no answer in time: %w", s, err)
	}
	return fmt.Errorf("%s: %w", s, err)
}
