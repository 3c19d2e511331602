package redisscript

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Library is a library of functions: scripts that Redis from version 7 on compiles
// once and stores, with closures that are made once. [NewLibrary] makes a Library.
type Library struct {
	prefix, name, text string
}

// Words in the text of a library.
const (
	libraryName = "LIBRARY" // the name, which is the beginning of the names of all functions
	libraryDate = "LOADED"  // the day of the load
)

// libraryKept is the time for which an older library is kept beside a new library. In
// a rolling deploy two versions of a program run side by side.
const libraryKept = 30 * 24 * time.Hour

// refusalKept is the time for which scripts are sent after a server has refused
// functions: then the server may be a newer one, or have given the right.
const refusalKept = 10 * time.Minute

// began is the zero of [Server].refused.
var began = time.Now()

// NewLibrary makes a Library of its text. In the text the word LIBRARY stands for the
// name: the prefix and a hash of the text. Each function has a name that begins with
// LIBRARY, and the description LOADED, for which a day is sent.
func NewLibrary(prefix, text string) *Library {
	sum := sha256.Sum256([]byte(text))
	return &Library{prefix: prefix, name: prefix + hex.EncodeToString(sum[:8]), text: text}
}

// Text returns the program, before the replacement of words.
func (l *Library) Text() string { return l.text }

// Function makes a Script that is a function of the library where the server has
// libraries, and sc elsewhere. The name of the function is LIBRARY and suffix.
func (l *Library) Function(suffix string, sc Script) Script {
	sc.library, sc.function = l, l.name+suffix
	return sc
}

// call runs a function. Done is false if the server has done nothing, and the
// script is to be sent instead: a server before version 7, without the right to run
// or load functions, or without memory or replicas, where a script still peeks and
// denies.
func (s *Server) call(ctx context.Context, sc Script, keys []string, args []any) (reply any, trips int64, done bool, err error) {
	reply, err = s.send(ctx, "fcall", sc, keys, args)
	trips = 1
	loaded := true
	if missing(err) {
		var tidy func()
		tidy, err = s.load(ctx, sc.library, keys[0])
		trips++
		if loaded = err == nil; loaded {
			reply, err = s.send(ctx, "fcall", sc, keys, args)
			trips++
			defer tidy()
		}
	}
	switch {
	case refuses(err):
		s.refused.Store(int64(time.Since(began) + refusalKept))
		return nil, trips, false, nil
	case missing(err), notNow(err), !loaded && answered(err):
		return nil, trips, false, nil
	}
	return reply, trips, true, err
}

// load brings a library to the server of a key, and returns a function that removes
// older libraries. If another caller has brought the library meanwhile, that function
// does nothing.
func (s *Server) load(ctx context.Context, l *Library, key string) (tidy func(), err error) {
	var node redis.Cmdable = s.client
	if s.cluster != nil {
		if node, err = s.cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	err = node.FunctionLoad(ctx, l.code(now)).Err()
	switch {
	case err == nil:
		return func() { l.removeOld(ctx, node, now) }, nil
	case answered(err) && redis.HasErrorPrefix(err, "Library") && strings.Contains(err.Error(), "already exists"):
		return func() {}, nil
	}
	return nil, err
}

// code returns the program that is loaded at now.
func (l *Library) code(now time.Time) string {
	return strings.NewReplacer(libraryName, l.name, libraryDate, now.UTC().Format(time.DateOnly)).Replace(l.text)
}

// missing tells whether the server lacks a library.
func missing(err error) bool { return redis.HasErrorPrefix(err, "Function not found") }

// refuses tells whether the server refuses functions, for a reason that lasts: an
// unknown command, a missing right, or a library that the server cannot compile.
func refuses(err error) bool {
	if !answered(err) {
		return false
	}
	text := err.Error()
	return redis.HasErrorPrefix(err, "NOPERM") || strings.Contains(text, "unknown command") ||
		strings.Contains(text, "unsupported command") || strings.Contains(text, "Error compiling function")
}

// notNow tells whether the server refuses any function that may write, as a server
// without memory does. A script is refused at its first write only.
func notNow(err error) bool {
	return answered(err) &&
		(redis.HasErrorPrefix(err, "OOM") || redis.HasErrorPrefix(err, "MISCONF") || redis.HasErrorPrefix(err, "NOREPLICAS"))
}

// answered tells whether an error is the server's answer to a command, and not to a
// command inside of a function.
func answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !strings.Contains(err.Error(), " script: ")
}

// removeOld removes libraries with the prefix of l that were loaded long before now. A
// program that still uses such a library loads the library again, with a new day; so
// two programs do not remove each other's library by turns. Errors are passed over:
// without the right to remove, libraries stay.
func (l *Library) removeOld(ctx context.Context, node redis.Cmdable, now time.Time) {
	all, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: l.prefix + "*"}).Result()
	if err != nil {
		return
	}
	for _, other := range all {
		if other.Name == l.name || len(other.Name) != len(l.name) || len(other.Functions) == 0 {
			continue
		}
		loaded, err := time.Parse(time.DateOnly, other.Functions[0].Description)
		if err == nil && now.Sub(loaded) > libraryKept {
			_ = node.FunctionDelete(ctx, other.Name).Err()
		}
	}
}
