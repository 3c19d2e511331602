package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// scaleKeys shows the cost of a call as there are more keys.
func scaleKeys(rounds, calls int) {
	cores := runtime.GOMAXPROCS(0)
	var rows []contestant
	var keys [][]string
	for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
		rows = append(rows, abacus(fmt.Sprintf("%d keys", n), 1, fmt.Sprintf("%d/d", enough)))
		keys = append(keys, makeKeys(n))
	}
	interleave(rows, keys, rounds, calls, cores)
}

// scaleWindows shows the cost of a call as its window grows.
func scaleWindows(names []string, rounds, calls int) {
	cores := runtime.GOMAXPROCS(0)
	var rows []contestant
	var keys [][]string
	for _, per := range []string{"m", "h", "d", "7d", "30d"} {
		rows = append(rows, abacus("1/"+per, 1, fmt.Sprintf("%d/%s", enough, per)))
		keys = append(keys, names)
	}
	interleave(rows, keys, rounds, calls, cores)
}

func interleave(rows []contestant, keys [][]string, rounds, calls, cores int) {
	results := make([][]float64, len(rows))
	hits := make([]func(int) bool, len(rows))
	for i := range rows {
		warm(rows[i].make(keys[i]), keys[i])
		hits[i] = rows[i].make(copies(keys[i]))
	}
	for range rounds {
		for i := range rows {
			ns, _ := run(hits[i], keys[i], calls, cores)
			results[i] = append(results[i], ns)
		}
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "\tmedian\tmin\tmax\tto the first\t")
	for i := range rows {
		fmt.Fprintf(out, "%s\t%.0f\t%.0f\t%.0f\t%.2f\t\n", rows[i].name, median(results[i]),
			slices.Min(results[i]), slices.Max(results[i]), median(results[i])/median(results[0]))
	}
	out.Flush()
}

// floods shows that fresh keys without end stay inside the bound, at a cost
// that does not grow.
func floods(n int) {
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "policy\tfilling, first tenth\tfull, third tenth\tlast tenth\tlast to third\tkeys kept\theap MB\tadmitted\trefused\t")
	for name, policy := range map[string]memory.Policy{"refuse": memory.Refuse, "forget": memory.Forget} {
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		store := memory.New(memory.Config{Full: policy})
		c := must(counter.New(store, counter.Config{Ladder: tiers.Default}))
		limits := counter.MustLimits("100/d")
		admitted, refused := 0, 0
		part := func(from, to int) float64 {
			start := time.Now()
			for i := from; i < to; i++ {
				v, err := c.Take(ctx, counter.Key{Event: "signup", Feature: fmt.Sprintf("ip:%d", i)}, 1, limits)
				if err != nil {
					refused++
				} else if v.Allowed {
					admitted++
				}
			}
			return float64(time.Since(start).Nanoseconds()) / float64(to-from)
		}
		first := part(0, n/10)
		part(n/10, n/10*2)
		third := part(n/10*2, n/10*3)
		part(n/10*3, n-n/10)
		last := part(n-n/10, n)
		runtime.GC()
		var after runtime.MemStats
		runtime.ReadMemStats(&after)
		stats := store.Stats()
		fmt.Fprintf(out, "%s\t%.0f ns\t%.0f ns\t%.0f ns\t%.2f\t%d\t%d\t%d\t%d\t\n", name, first, third, last, last/third,
			stats.Keys, (after.HeapAlloc-before.HeapAlloc)>>20, admitted, refused)
		runtime.KeepAlive(store)
	}
	out.Flush()
}
