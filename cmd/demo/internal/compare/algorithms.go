package compare

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/classic"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/tiers"
)

// algorithm is a limiter in a trial, for a single goroutine.
type algorithm interface {
	// take decides about a hit; an admitted hit happens after a delay.
	take(ctx context.Context, key counter.Key) (allowed bool, delay time.Duration, err error)

	// weigh is the number of bytes held by the store for a key, after all of the
	// key's hits.
	weigh(ctx context.Context, key counter.Key, hits []Hit) (int64, error)

	// account fills in the cost of the whole log, after its last event.
	account(ctx context.Context, a *Algorithm, log *Log, admitted func(event uint32) bool) error

	// clean removes from servers what the events of log have left there.
	clean(ctx context.Context, log *Log) error
}

// candidate is an algorithm that may serve a limit.
type candidate struct {
	name, source, worst string
	open                func(ctx context.Context, c *Comparison, limit counter.Limit) (algorithm, error)
}

// candidates lists all algorithms for a limit in the order of the report; the
// first is exact.
func candidates(limit counter.Limit) []candidate {
	all := []candidate{
		textbook(exactLog, "N", classic.NewSlidingLog),
		textbook("fixed window", "2N", classic.NewFixedWindow),
		textbook("fixed slots", "2N", classic.NewFixedSlots),
		textbook("first hit window", "2N-1", classic.NewFirstHitWindow),
		textbook("sliding counter", "2N-1", classic.NewSlidingCounter),
		textbook("sliding decay", "2N", classic.NewSlidingDecay),
		textbook("request decay", "2N", classic.NewRequestDecay),
		textbook("token bucket", "2N", unbursting(classic.NewTokenBucket)),
		textbook("GCRA", "2N", unbursting(classic.NewGCRA)),
		textbook("leaky meter", "2N", unbursting(classic.NewLeakyMeter)),
		textbook("leaky queue", "N+1", func(l counter.Limit, s *classic.Store) (*classic.LeakyQueue, error) {
			return classic.NewLeakyQueue(l, l.Max, s)
		}),
		textbook("token shaper", "2N", func(l counter.Limit, s *classic.Store) (*classic.TokenShaper, error) {
			return classic.NewTokenShaper(l, 0, l.Max, s)
		}),
		textbook(textbookTiers, "2N", classic.NewTextbookTiers),
	}
	for _, l := range ladders(limit.Per) {
		all = append(all, onLadder(l))
	}
	return all
}

const (
	exactLog      = "sliding log"
	textbookTiers = "textbook tiers"
)

// unbursting makes limiters with the default burst.
func unbursting[L classic.Measured](limiter func(counter.Limit, int64, *classic.Store) (L, error)) func(counter.Limit, *classic.Store) (L, error) {
	return func(l counter.Limit, s *classic.Store) (L, error) { return limiter(l, 0, s) }
}

// ladders lists the default ladder, coarser ladders, and the ladder fitted to the
// window.
func ladders(per time.Duration) []tiers.Ladder {
	all := []tiers.Ladder{
		tiers.Default,
		must(tiers.New(tiers.Tier{Width: time.Minute, Keep: dur.Day}, tiers.Tier{Width: time.Hour, Keep: dur.Day})),
		must(tiers.New(tiers.Tier{Width: 10 * time.Minute, Keep: dur.Day}, tiers.Tier{Width: time.Hour, Keep: dur.Day})),
	}
	if fit := tiers.For(per); fit.String() != tiers.Default.String() {
		all = append(all, fit)
	}
	return all
}

func must(l tiers.Ladder, err error) tiers.Ladder {
	if err != nil {
		panic(err) // not from input
	}
	return l
}

// reason is the text of err without the package and the limit, both known to the
// reader.
func reason(err error, limit counter.Limit) string {
	text := err.Error()
	for _, known := range []string{"classic: ", "tiers: ", "counter: ", fmt.Sprintf("limit %s: ", limit)} {
		text = strings.TrimPrefix(text, known)
	}
	return text
}
