package promise

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/ticket"
	"github.com/abacus-go/abacus/tiers"
)

// Keys counts another number under every key of [OddKeys], and finds each again.
var Keys = Case{
	Name: "keys", Promise: "any key, none mixed up",
	Rule: "each Key counts by itself",
	Try: func(ctx context.Context, s *Subject) (f Finding, err error) {
		const workers = 16
		all := OddKeys()
		c, err := s.Counter(tiers.Default, true)
		if err != nil {
			return f, err
		}
		limits := counter.Limits{{Max: 10_000, Per: 24 * time.Hour}}
		failed := make([]bool, len(all)) // of a key with a late call nothing more is asked
		var mu sync.Mutex
		var wrong error
		for _, ask := range []func(key counter.Key, n int64) (late bool, err error){
			func(key counter.Key, n int64) (bool, error) {
				v, late, err := s.take(ctx, c, key, n, limits)
				if err == nil && !v.Allowed {
					err = fmt.Errorf("%d hits of %d were denied", n, limits[0].Max)
				}
				return late, err
			},
			func(key counter.Key, n int64) (bool, error) {
				count, late, err := s.count(ctx, c, key)
				if err == nil && (count.Low != n || count.High != n) {
					err = fmt.Errorf("%d hits are counted as %d to %d", n, count.Low, count.High)
				}
				return late, err
			},
		} {
			ticket.SideBySide(workers, func(worker int) {
				for i := worker; i < len(all) && ctx.Err() == nil; i += workers {
					if failed[i] {
						continue
					}
					late, err := ask(all[i], int64(1+i))
					if err == nil {
						continue
					}
					failed[i] = true
					mu.Lock()
					if f.Failed++; late {
						f.Late, f.Last = f.Late+1, err
					} else if wrong == nil {
						wrong = fmt.Errorf("event %.20q, feature %.20q: %w", all[i].Event, all[i].Feature, err)
					}
					mu.Unlock()
				}
			})
			if wrong != nil {
				return f, wrong
			}
		}
		f.Calls = len(all)
		f.Seen = fmt.Sprintf("%d keys: every byte, 10 KiB, newlines, braces", len(all)-f.Failed)
		return f, nil
	},
}

// OddKeys returns keys that stores have mistaken for each other or refused.
func OddKeys() []counter.Key {
	all := []counter.Key{
		{Event: "a:b", Feature: "c"}, {Event: "a", Feature: "b:c"}, {Event: "a", Feature: "b"}, {Event: "a:", Feature: "b"}, {Event: "a", Feature: ":b"},
		{Event: "a ", Feature: "b"}, {Event: "a", Feature: " b"}, {Event: "a_b", Feature: "c"}, {Event: "a", Feature: "b_c"},
		{Event: "A", Feature: "b"}, {Event: "a", Feature: "B"}, {Event: "a/b", Feature: "c"}, {Event: "a", Feature: "b/c"},
	}
	var every strings.Builder
	for b := range 256 {
		one := string([]byte{byte(b)})
		all = append(all, counter.Key{Event: "byte", Feature: "x" + one}, counter.Key{Event: "y" + one, Feature: "byte"})
		every.WriteByte(byte(b))
	}
	features := []string{
		every.String(), every.String() + "!", " ", "\n", "\r\n", "\x00", "a b", "a\nb", "a\r\nb", "a\r\nset x 0 0 1", "{}", "{a}b", "{a}{b", "}{",
		"a:b", "a/b", "a|1s0", "%", "%25", "a%20b", "ä", "a\u0308", "Ä", "日本語", "\xff\xfe", strings.Repeat(" ", 1<<10), strings.Repeat("f", 10<<10-1) + "g",
	}
	for _, n := range []int{150, 151, 250, 251, 1 << 10, 10 << 10} {
		features = append(features, strings.Repeat("f", n))
	}
	for _, feature := range features {
		all = append(all, counter.Key{Event: "odd", Feature: feature}, counter.Key{Event: feature, Feature: "odd"})
	}
	return all
}
