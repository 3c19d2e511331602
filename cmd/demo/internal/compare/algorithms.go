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

// algorithm is one that is being run. It is used by one goroutine.
type algorithm interface {
	// begin is called before the first event.
	begin(ctx context.Context) error

	take(ctx context.Context, key counter.Key) (bool, error)

	// weigh is the number of bytes that the store holds for a key, after all of
	// its hits.
	weigh(ctx context.Context, key counter.Key, hits []Hit) (int64, error)

	// account fills in the cost of the whole log, after its last event.
	account(ctx context.Context, a *Algorithm, log *Log, admitted func(event uint32) bool) error
}

// candidate is an algorithm that may serve a limit.
type candidate struct {
	name, source, worst string
	open                func(c *Comparison, limit counter.Limit) (algorithm, error)
}

// candidates are all algorithms for a limit as they are to be shown; the first is
// exact.
func candidates(limit counter.Limit) []candidate {
	all := []candidate{
		textbook("sliding log", "N", func(l counter.Limit, s *classic.Store) (classic.Measured, error) { return classic.NewSlidingLog(l, s) }),
		textbook("fixed window", "2N", func(l counter.Limit, s *classic.Store) (classic.Measured, error) { return classic.NewFixedWindow(l, s) }),
		textbook("fixed slots", "2N", func(l counter.Limit, s *classic.Store) (classic.Measured, error) { return classic.NewFixedSlots(l, s) }),
		textbook("sliding counter", "2N-1", func(l counter.Limit, s *classic.Store) (classic.Measured, error) {
			return classic.NewSlidingCounter(l, s)
		}),
		textbook("sliding decay", "2N", func(l counter.Limit, s *classic.Store) (classic.Measured, error) {
			return classic.NewSlidingDecay(l, s)
		}),
		textbook("token bucket", "2N", func(l counter.Limit, s *classic.Store) (classic.Measured, error) {
			return classic.NewTokenBucket(l, 0, s)
		}),
		textbook("GCRA", "2N", func(l counter.Limit, s *classic.Store) (classic.Measured, error) { return classic.NewGCRA(l, 0, s) }),
		textbook("leaky meter", "2N", func(l counter.Limit, s *classic.Store) (classic.Measured, error) {
			return classic.NewLeakyMeter(l, 0, s)
		}),
		textbook("leaky queue", "N+1", func(l counter.Limit, s *classic.Store) (classic.Measured, error) {
			return classic.NewLeakyQueue(l, 0, s)
		}),
		textbook(textbookTiers, "2N", func(l counter.Limit, s *classic.Store) (classic.Measured, error) {
			return classic.NewTextbookTiers(l, s)
		}),
	}
	for _, l := range ladders(limit.Per) {
		all = append(all, onLadder(l))
	}
	return all
}

const textbookTiers = "textbook tiers"

// ladders are the default, coarser ones, and the one that fits the window.
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

// reason is err without what the reader knows: whose error it is, and of which
// limit.
func reason(err error, limit counter.Limit) string {
	text := err.Error()
	for _, known := range []string{"classic: ", "tiers: ", "counter: ", fmt.Sprintf("limit %s: ", limit)} {
		text = strings.TrimPrefix(text, known)
	}
	return text
}
