package redis

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/internal/redisscript"
)

// The programs are functions of a library where the server has libraries, which Redis
// from version 7 on compiles once and stores, with closures that are made once. A server
// without gets the same programs as scripts.

const (
	libraryPrefix = "abacus_"

	// libraryKept is the time for which an older library is kept next to a new library. In
	// a rolling deploy two versions of a program run side by side.
	libraryKept = 30 * 24 * time.Hour

	// refusalKept is the time for which scripts are sent after a server has refused
	// functions: then the server may be a newer one, or have given the right.
	refusalKept = 10 * time.Minute
)

// loadedAt returns the library as it is loaded at now. In the text LIBRARY stands for the
// name, and LOADED for the day of the load.
func (p *programs) loadedAt(now time.Time) string {
	return strings.NewReplacer("LIBRARY", p.name, "LOADED", now.UTC().Format(time.DateOnly)).Replace(p.library)
}

// program is a script that is a function of the library as well.
type program struct {
	redisscript.Script
	function string
	counts   bool // adds hits, and tells the time
	frees    bool
}

// freeing returns the program for runs that take away more than they store: a server
// whose memory is full runs them as well, from version 7 on. Such a run adds no hits.
func (p program) freeing() program {
	p.frees, p.counts = true, false
	return p
}

// freeingText returns the script with a flag for a server whose memory is full. Versions
// before 7 do not understand the flag.
func (p program) freeingText() string { return "#!lua flags=allow-oom\n" + p.Text() }

// timeIn returns the server's time in an answer, 0 if the answer has no time,
// and whether the call came too late.
func (p program) timeIn(answer any) (micro int64, late bool) {
	if !p.counts {
		return 0, false
	}
	switch answer := answer.(type) {
	case string:
		if len(answer) > timeBytes && answer[0] != deniedByte {
			return int64(number(answer[len(answer)-timeBytes:])), answer[0] == lateByte
		}
	case []any:
		if len(answer) > 0 {
			micro, _ = answer[len(answer)-1].(int64)
		}
	}
	return micro, false
}

// load brings the library to the server of a key, and returns a function that removes
// older libraries. If another caller has brought the library meanwhile, that function
// does nothing.
func (s *sums) load(ctx context.Context, key string) (tidy func(), err error) {
	var node redis.Cmdable = s.server.Client()
	if cluster := s.server.Cluster(); cluster != nil {
		if node, err = cluster.MasterForKey(ctx, key); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	err = node.FunctionLoad(ctx, scripts().loadedAt(now)).Err()
	switch {
	case err == nil:
		return func() { removeOld(ctx, node, now) }, nil
	case answered(err) && redis.HasErrorPrefix(err, "Library") && strings.Contains(err.Error(), "already exists"):
		return func() {}, nil
	}
	return nil, err
}

// removeOld removes libraries of this package that were loaded long before now. A
// program that still uses such a library loads the library again, with a new day; so
// two programs do not remove each other's library by turns. Errors are passed over:
// without the right to remove, libraries stay.
func removeOld(ctx context.Context, node redis.Cmdable, now time.Time) {
	all, _ := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: libraryPrefix + "*"}).Result()
	name := scripts().name
	for _, other := range all {
		if other.Name == name || len(other.Name) != len(name) || len(other.Functions) == 0 {
			continue
		}
		loaded, err := time.Parse(time.DateOnly, other.Functions[0].Description)
		if err == nil && now.Sub(loaded) > libraryKept {
			_ = node.FunctionDelete(ctx, other.Name).Err()
		}
	}
}

// isMissing reports whether the server lacks the library.
func isMissing(err error) bool { return redis.HasErrorPrefix(err, "Function not found") }

// refuses reports whether the server refuses functions, for a reason that lasts: an
// unknown command, a missing right, or a library that the server cannot compile.
func refuses(err error) bool {
	if !answered(err) {
		return false
	}
	text := err.Error()
	return redis.HasErrorPrefix(err, "NOPERM") || strings.Contains(text, "unknown command") ||
		strings.Contains(text, "unsupported command") || strings.Contains(text, "Error compiling function")
}

// notNow reports whether the server refuses any function that may write, as a server
// without memory does. A script is refused at its first write only.
func notNow(err error) bool {
	return answered(err) &&
		(redis.HasErrorPrefix(err, "OOM") || redis.HasErrorPrefix(err, "MISCONF") || redis.HasErrorPrefix(err, "NOREPLICAS"))
}

// answered reports whether an error is the server's answer to a command, and not to a
// command inside of a function.
func answered(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !strings.Contains(err.Error(), " script: ")
}
