package check

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// oddKeys are keys that stores have mistaken for each other, or refused.
func oddKeys() []counter.Key {
	all := []counter.Key{{Event: "a:b", Feature: "c"}, {Event: "a", Feature: "b:c"}, {Event: "a ", Feature: "b"}, {Event: "a", Feature: " b"}}
	var every strings.Builder
	for b := range 256 {
		all = append(all, counter.Key{Event: "byte", Feature: string([]byte{byte(b)})})
		every.WriteByte(byte(b))
	}
	long := strings.Repeat("x", 10<<10)
	for _, feature := range []string{
		every.String(), every.String() + "!", long, long + "y", "a\r\nb", "a\nb", "{a}b", "{a}{b", "a|1s0", "a%20b", "a b", "ä", "a\u0308",
	} {
		all = append(all, counter.Key{Event: "odd", Feature: feature}, counter.Key{Event: feature, Feature: "odd"})
	}
	return all
}

// keys takes the one place of every odd key: each has its own, and only one.
func (r *run) keys(ctx context.Context) (Result, error) {
	const workers = 8
	result := Result{Name: "keys", Promise: "any key, none mixed up", Status: OK}
	all := oddKeys()
	c, err := r.counter(tiers.Default)
	if err != nil {
		return result, err
	}
	limits := counter.Limits{{Max: 1, Per: 24 * time.Hour}}
	for pass, want := range []bool{true, false} {
		errs := make([]error, len(all))
		var wait sync.WaitGroup
		for worker := range workers {
			wait.Go(func() {
				for i := worker; i < len(all); i += workers {
					v, err := c.Take(ctx, all[i], 1, limits)
					if err != nil || v.Allowed != want {
						errs[i] = orUnexpected(err, "hit %d of 1 of event %.20q, feature %.20q: admitted %t", pass+1, all[i].Event, all[i].Feature, v.Allowed)
					}
				}
			})
		}
		wait.Wait()
		for _, err := range errs {
			if err != nil {
				return result, err
			}
		}
	}
	result.Seen = fmt.Sprintf("%d keys: every byte, 10 KiB, newlines, braces", len(all))
	return result, nil
}
