package backendtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/abacus-go/abacus/counter"
)

func features(s *subject) error {
	var keys []counter.Key
	for b := range 256 {
		keys = append(keys, counter.Key{Event: "e", Feature: string([]byte{'x', byte(b)})}, counter.Key{Event: string([]byte{byte(b)}), Feature: "x"})
	}
	for _, feature := range []string{" ", "\n", "\r\n", "\x00", "a b", "a\r\nset x 0 0 1", "{}", "{a}b", "}{", "a:b", "a/b", "%", "%25", "ä", "Ä", "日本語", "\xff\xfe",
		strings.Repeat("f", 150), strings.Repeat("f", 151), strings.Repeat("f", 250), strings.Repeat("f", 251), strings.Repeat("f", 1<<10), strings.Repeat("f", 10<<10), strings.Repeat("f", 10<<10-1) + "g", strings.Repeat(" ", 1<<10)} {
		keys = append(keys, counter.Key{Event: "odd", Feature: feature}, counter.Key{Event: feature + "!", Feature: "odd"})
	}
	keys = append(keys, []counter.Key{{Event: "a:b", Feature: "c"}, {Event: "a", Feature: "b:c"}, {Event: "a", Feature: "b"}, {Event: "a:", Feature: "b"}, {Event: "a", Feature: ":b"},
		{Event: "a_b", Feature: "c"}, {Event: "a", Feature: "b_c"}, {Event: "A", Feature: "b"}, {Event: "a", Feature: "B"}, {Event: "a/b", Feature: "c"}, {Event: "a", Feature: "b/c"}}...)
	c, err := s.counter("f", counter.Config{Skew: -1, Settle: -1, Patience: -1, Now: func() time.Time { return noon }})
	if err != nil {
		return err
	}
	limits := counter.Limits{{Max: 10_000, Per: time.Hour}}
	for i, key := range keys {
		if v, err := c.Take(context.Background(), key, int64(1+i), limits); err != nil || !v.Allowed {
			return fmt.Errorf("event %.40q, feature %.40q: allowed %v, %w", key.Event, key.Feature, v.Allowed, err)
		}
	}
	for i, key := range keys {
		n, err := c.Count(context.Background(), key, time.Hour)
		if err != nil {
			return err
		}
		if n.Low != int64(1+i) || n.High != int64(1+i) {
			return fmt.Errorf("event %.40q, feature %.40q: %+v, want %d", key.Event, key.Feature, n, 1+i)
		}
	}
	return nil
}

func years(s *subject) error {
	for _, year := range []int{1701, 1965, 1969, 1971, 2037, 2038, 2040, 2106, 2249} {
		now := time.Date(year, 1, 19, 3, 14, 0, 0, time.UTC)
		key := counter.Key{Event: "y", Feature: fmt.Sprint(year)}
		c, err := s.counter("y", counter.Config{Ladder: mustLadder("1s:1d, 1m:366d, 1d:366d"), Skew: -1, Settle: -1, Patience: -1, Now: func() time.Time { return now }})
		if err != nil {
			return err
		}
		for i, step := range []struct {
			forward time.Duration
			n       int64
			limits  string
			allowed bool
			retry   time.Duration
			count   int64 // of the last 366 days
		}{
			{0, 3, "5/m, 9/366d", true, 0, 3},
			{10 * time.Second, 3, "5/m, 9/366d", false, 51 * time.Second, 3},
			{51 * time.Second, 3, "5/m, 9/366d", true, 0, 6},
			{time.Minute, 4, "5/m, 9/366d", false, 366*24*time.Hour - 2*time.Minute, 6},
			{time.Minute, 3, "5/m, 9/366d", true, 0, 9},
			{30 * 24 * time.Hour, 1, "5/m, 9/366d", false, 336*24*time.Hour - 3*time.Minute, 9},
		} {
			now = now.Add(step.forward)
			v, err := c.Take(context.Background(), key, step.n, counter.MustLimits(step.limits))
			if err != nil {
				return fmt.Errorf("the year %d: %w", year, err)
			}
			// The end of a minute and of a second, to a bucket.
			if v.Allowed != step.allowed || v.RetryAfter < step.retry || v.RetryAfter > step.retry+time.Minute+time.Second {
				return fmt.Errorf("the year %d, step %d: allowed %v, retry after %s, want %v and %s", year, i, v.Allowed, v.RetryAfter, step.allowed, step.retry)
			}
			n, err := c.Count(context.Background(), key, 366*24*time.Hour)
			if err != nil {
				return err
			}
			if n.High != step.count {
				return fmt.Errorf("the year %d, step %d: counts %+v, want %d", year, i, n, step.count)
			}
		}
	}
	return nil
}

func series(s *subject) error {
	now := noon
	c, err := s.counter("s", counter.Config{Skew: -1, Settle: -1, Patience: -1, Now: func() time.Time { return now }})
	if err != nil {
		return err
	}
	key := counter.Key{Event: "e", Feature: "f"}
	want := map[int64]int64{}
	for i := range 500 {
		now = noon.Add(-time.Duration(i*172) * time.Second)
		if err := c.Add(context.Background(), key, int64(1+i)); err != nil {
			return err
		}
		want[now.Unix()] = int64(1 + i)
	}
	now = noon
	points, err := c.Series(context.Background(), key, noon.Add(-86_399*time.Second), noon.Add(1), time.Second)
	if err != nil {
		return err
	}
	if len(points) != 86_400 {
		return fmt.Errorf("%d points, want 86400", len(points))
	}
	for _, p := range points {
		if p.Count != want[p.Start.Unix()] {
			return fmt.Errorf("%v counts %d, want %d", p.Start.UTC(), p.Count, want[p.Start.Unix()])
		}
	}
	return nil
}
