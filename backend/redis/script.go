package redis

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/internal/redisscript"
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

func newScript(parts ...string) redisscript.Script {
	return redisscript.New(fmt.Sprintf("local BIAS = %d\n%s", int64(bias*perBucket), strings.Join(parts, "\n")))
}

// What few calls need is made only when it is needed: a function costs time even
// if it is not called.
var (
	slowly     = "local function slowly()\n" + changeLua + "\nreturn change, bundle, rewrite\nend"
	takeScript = newScript(rootLua, findLua, slowly, takeLua)
	doScript   = newScript(rootLua, beforeLua, slowly, doLua)
)

// run runs a script and returns its answer, by the deadline.
func (s *Store) run(ctx context.Context, deadline time.Time, sc redisscript.Script, keys []string, p program) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		return nil, fmt.Errorf("%s: the deadline had passed before the call", s)
	}
	ctx, cancel := s.until(ctx, deadline)
	defer cancel()
	reply, _, err := s.server.Run(ctx, sc, keys, []byte(p))
	if err != nil && strings.Contains(err.Error(), "ABACUS full") {
		return nil, fmt.Errorf("%s: the hits of this key would exceed 2^53-1", s)
	}
	if err != nil {
		return nil, s.server.Failed(ctx, err)
	}
	return reply, nil
}

// odd is an answer that a script of this store does not give.
func (s *Store) odd(what any) error {
	return fmt.Errorf("%s: an unexpected answer of type %T", s, what)
}
