package promise

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// Denied fills a key, has it denied many times, and looks for what the denials took.
// A late call may have counted: then the case starts again, with another key.
var Denied = Case{
	Name: "denied", Promise: "denied hits are free",
	Rule: "a denied hit takes nothing: not from the window, not from the callers after it",
	Try: func(ctx context.Context, s *Subject) (f Finding, err error) {
		const tries = 3
		for i := range tries {
			began, late := time.Now(), false
			f, late, err = s.denyMany(ctx, counter.Key{Event: "denied", Feature: fmt.Sprint("try ", i)})
			if !late || ctx.Err() != nil || time.Since(began) > s.Patience {
				break
			}
		}
		return f, err
	},
}

func (s *Subject) denyMany(ctx context.Context, key counter.Key) (f Finding, late bool, err error) {
	const most, denials = 3, 60
	limits := func(max int64) counter.Limits { return counter.Limits{{Max: max, Per: 24 * time.Hour}} }
	c, err := s.Counter(tiers.Default, true)
	if err != nil {
		return f, false, err
	}
	for i := range most {
		v, late, err := s.take(ctx, c, key, 1, limits(most))
		if err != nil || !v.Allowed {
			return f, late, cmp.Or(err, fmt.Errorf("hit %d of %d was denied", i+1, most))
		}
	}
	for i := range denials {
		// A call just like the last would be answered without the store.
		v, late, err := s.take(ctx, c, key, int64(1+i%2), limits(most))
		if err != nil || v.Allowed {
			return f, late, cmp.Or(err, fmt.Errorf("hit %d of %d was admitted", most+1, most))
		}
		if v.RetryAfter <= 0 || v.RetryAfter > 25*time.Hour {
			return f, false, fmt.Errorf("denied, with a RetryAfter of %s", v.RetryAfter)
		}
	}
	count, late, err := s.count(ctx, c, key)
	if err != nil {
		return f, late, err
	}
	// Another Counter finds the room for one more.
	other, err := s.Counter(tiers.Default, true)
	if err != nil {
		return f, false, err
	}
	v, late, err := s.take(ctx, other, key, 1, limits(most+1))
	if err != nil {
		return f, late, err
	}
	f.Seen = fmt.Sprintf("%d admitted, %d denied: %d counted", most, denials, count.High)
	switch {
	case count.High > most:
		f.Broken = "Promise 3 is broken: denied hits are counted, and who keeps trying is kept out."
	case count.High < most || count.Low < most:
		f.Broken = "Promise 1 is broken: hits that were admitted are not found again, so keys can be admitted more than Max. Read from the server that is written to."
	case !v.Allowed:
		f.Broken = "Hit 4 of 4 was denied: there was room, and nothing else was counted."
	}
	return f, false, nil
}
