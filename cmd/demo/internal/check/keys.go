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

// keys takes two hits of every odd key under a limit of 1: the first must be
// admitted, the second denied. After a late call its key is left alone.
func (r *run) keys(ctx context.Context) (Result, error) {
	const workers = 16
	result := Result{Name: "keys", Promise: "any key, none mixed up", Status: OK}
	all := oddKeys()
	c, err := r.patient(tiers.Default)
	if err != nil {
		return result, err
	}
	limits := counter.Limits{{Max: 1, Per: 24 * time.Hour}}
	errs := make([]error, len(all))
	for pass, want := range []bool{true, false} {
		var wait sync.WaitGroup
		for worker := range workers {
			wait.Go(func() {
				for i := worker; i < len(all) && ctx.Err() == nil; i += workers {
					if errs[i] != nil {
						continue
					}
					v, err := take(ctx, c, all[i], 1, limits)
					if err != nil || v.Allowed != want {
						errs[i] = orUnexpected(err, "hit %d of 1 of event %.20q, feature %.20q: admitted %t", pass+1, all[i].Event, all[i].Feature, v.Allowed)
					}
				}
			})
		}
		wait.Wait()
		for _, err := range errs {
			if err != nil && !late(err) {
				return result, err
			}
		}
	}
	f := failures{calls: len(all)}
	for _, err := range errs {
		if err != nil {
			f.failed, f.slow, f.last = f.failed+1, f.slow+1, err
		}
	}
	if f.all() {
		return result, f.last
	}
	result.Seen = fmt.Sprintf("%d keys: every byte, 10 KiB, newlines, braces", len(all)-f.failed)
	if f.failed > 0 {
		f.warn(r, &result)
	}
	return result, nil
}
