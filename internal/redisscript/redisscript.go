// Package redisscript sends scripts that count to a Redis server, a master behind
// Sentinel or a Cluster: each script at most once, by the deadline of the context, as a
// function of a library where the server has libraries, and with a text only where
// the server does not know the library or script. Scripts that are run at the same time
// can share round trips.
package redisscript

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server runs scripts. A Server is safe for use by many goroutines at once.
type Server struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil: one server holds all keys
	name    string
	queue   *queue // nil: each call goes alone

	refused   atomic.Int64 // nanoseconds after began until which functions are not tried
	byScripts atomic.Int64
}

// On makes a Server of a client; closing the client is left to the owner. On
// refuses a client that ignores deadlines once the client waits for an answer, and
// a client with a rule of its own for spreading keys, such as a Ring.
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

// Client returns the client that [On] was given.
func (s *Server) Client() redis.UniversalClient { return s.client }

// Cluster tells whether keys are spread over servers by their hash slots.
func (s *Server) Cluster() bool { return s.cluster != nil }

// ByScripts returns the number of runs of functions of a [Library] for which a script
// was sent instead, since the server had no functions or refused to run or to load
// the function.
func (s *Server) ByScripts() int64 { return s.byScripts.Load() }

// Script is a Lua program and its name on the server. [New] makes a Script, and
// [Library.Function] a Script that is a function as well.
type Script struct {
	text, sha string
	library   *Library
	function  string // empty without a library
	frees     bool   // see Freeing
}

// New makes a Script of its text.
func New(text string) Script {
	sum := sha1.Sum([]byte(text))
	return Script{text: text, sha: hex.EncodeToString(sum[:])}
}

// Text returns the program.
func (s Script) Text() string { return s.text }

// Name returns the SHA-1 by which the server finds a known script.
func (s Script) Name() string { return s.sha }

// FunctionName returns the name of the function; an empty string without a library.
func (s Script) FunctionName() string { return s.function }

// Freeing returns the Script for runs that take away more than they store: a server
// whose memory is full runs them as well, from version 7 on.
func (s Script) Freeing() Script {
	s.frees = true
	return s
}

// FreeingText returns the program with a flag for a server whose memory is full.
// Versions before 7 do not understand the flag.
func (s Script) FreeingText() string { return "#!lua flags=allow-oom\n" + s.text }

// Once is a command that must not be sent again: after a lost answer the command
// would count twice, or be denied the place taken by the first execution.
type Once struct{ *redis.Cmd }

// NoRetry tells the client not to send the command again.
func (Once) NoRetry() bool { return true }

// Run runs a script on keys and returns the answer and the number of round trips: one,
// but for a server that does not know the script yet or that refuses its function. The
// error is the client's; [Server.Failed] explains the error.
func (s *Server) Run(ctx context.Context, sc Script, keys []string, args ...any) (reply any, trips int64, err error) {
	if sc.library != nil {
		if int64(time.Since(began)) >= s.refused.Load() {
			var answered bool
			if reply, trips, answered, err = s.call(ctx, sc, keys, args); answered {
				return reply, trips, err
			}
		}
		s.byScripts.Add(1)
	}
	reply, err = s.send(ctx, "evalsha", sc, keys, args)
	trips++
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		// A fresh server. Nothing was run; with its text the script is there.
		reply, err = s.send(ctx, "eval", sc, keys, args)
		trips++
	}
	if sc.frees && redis.HasErrorPrefix(err, "OOM") {
		// The first write was refused, so nothing was done.
		sc.text = sc.FreeingText()
		again, failed := s.send(ctx, "eval", sc, keys, args)
		trips++
		if failed == nil || !redis.HasErrorPrefix(failed, "Error compiling script") {
			return again, trips, failed
		}
	}
	return reply, trips, err
}

func (s *Server) send(ctx context.Context, verb string, sc Script, keys []string, args []any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	program := sc.text
	switch verb {
	case "fcall":
		program = sc.function
	case "evalsha":
		program = sc.sha
	}
	all = append(all, verb, program, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	var err error
	if s.queue != nil && verb != "eval" {
		err = s.queue.process(ctx, cmd, sc, keys)
	} else {
		err = s.client.Process(ctx, Once{cmd})
	}
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// foreign is the error of a script for a stored value of a foreign form. For a
// value of another type Redis has an error of its own.
const foreign = "ABACUS foreign"

// brokenOff are the beginnings of the errors of a script or function that stumbled over a
// stored value, where the program stopped to look at each number.
var brokenOff = [2]string{"ERR user_script:", "ERR user_function:"}

// ErrForeign is the same error for callers that find a foreign value without a
// script.
var ErrForeign = errors.New(foreign)

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
	case strings.Contains(text, foreign), strings.Contains(text, "WRONGTYPE"), strings.HasPrefix(text, brokenOff[0]), strings.HasPrefix(text, brokenOff[1]):
		return fmt.Errorf("%s: what is stored for this key was not written by this store: %w", s, err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%s: no answer in time: %w", s, err)
	}
	return fmt.Errorf("%s: %w", s, err)
}
