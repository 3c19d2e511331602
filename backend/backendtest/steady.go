package backendtest

import (
	"context"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/parse"
)

// steady has a caller ask a hundred times a second, for a minute of a clock of its
// own. The excess of windows over Per is all that the caller may lose.
func steady(s *subject) {
	const skew, minute = 100 * time.Millisecond, time.Minute
	for _, row := range []struct {
		ladder, limit string
		g             time.Duration
	}{
		{"100ms:1m, 1s:1m", "10/2s", 100 * time.Millisecond},
		{"1s:1m, 10s:1m", "20/20s", time.Second},
	} {
		now := noon
		c := s.counter("s", counter.Config{Ladder: parse.Ladder(row.ladder), Skew: skew, Now: func() time.Time { return now }, Patience: enough})
		limits := counter.MustLimits(row.limit)
		admitted, step := 0, 10*time.Millisecond*time.Duration(thrift())
		for end := noon.Add(minute); now.Before(end); now = now.Add(step) {
			v := value(c.Take(context.Background(), counter.Key{Event: "steady", Feature: row.limit}, 1, limits))
			if v.Allowed {
				admitted++
			}
		}
		per, max := limits[0].Per, float64(limits[0].Max)
		least := 0.99 * max * float64(minute) / float64(per+row.g+skew)
		if float64(admitted) < least {
			failf("%s on %s: %d admitted in a minute of steady demand, want at least %.1f", row.limit, row.ladder, admitted, least)
		}
	}
}
