// Command bench sets this library beside other limiters that work in memory and
// count: x/time/rate in a sync.Map, go-limiter and ulule/limiter. All run in one
// process, in turn, round after round, so that a machine whose speed drifts is
// unfair to nobody; what is printed is the median over the rounds, the spread,
// and the median of the ratios within each round.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 9, "rounds; every contestant runs once in each")
	keys := flag.Int("keys", 100_000, "distinct keys, hit in random order")
	calls := flag.Int("calls", 2_000_000, "calls of each contestant in each round")
	flood := flag.Int("flood", 10_000_000, "fresh keys of the flood; 0: no flood")
	scale := flag.Bool("scale", true, "show the cost as keys and windows grow")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *keys < 1 || *calls < 1 {
		fmt.Fprintln(os.Stderr, "bench: want -rounds, -keys and -calls above zero, and no arguments")
		os.Exit(2)
	}
	fmt.Printf("%s %s/%s, %d cores", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if slices.Contains(peerModules, dep.Path) {
				fmt.Printf(", %s %s", strings.TrimPrefix(dep.Path, "github.com/"), dep.Version)
			}
		}
	}
	fmt.Println()
	names := makeKeys(*keys)
	for _, cores := range []int{1, runtime.NumCPU()} {
		runtime.GOMAXPROCS(cores)
		fmt.Printf("\n%d keys, %d cores, %d rounds of %d calls, ns per call\n", *keys, cores, *rounds, *calls)
		compare(contestants(), names, *rounds, *calls, cores)
	}
	if *scale {
		fmt.Printf("\nas keys grow, one day limit, ns per call\n")
		scaleKeys(*rounds, *calls)
		fmt.Printf("\nas the window grows, %d keys, ns per call\n", *keys)
		scaleWindows(names, *rounds, *calls)
	}
	if *flood > 0 {
		fmt.Printf("\na flood of %d fresh keys, one hit each\n", *flood)
		floods(*flood)
	}
}

// compare runs all contestants in turn and prints a row for each.
func compare(all []contestant, names []string, rounds, calls, cores int) {
	results := make([][]float64, len(all))
	allocs := make([]float64, len(all))
	hitters := make([]func(i int) bool, len(all))
	calling := copies(names)
	for c := range all {
		warm(all[c].make(names), names) // every key is there
		hitters[c] = all[c].make(calling)
	}
	for range rounds {
		for c := range all {
			ns, alloc := run(hitters[c], names, calls, cores)
			results[c] = append(results[c], ns)
			allocs[c] = alloc
		}
	}
	for c := range all {
		all[c].check(names, rounds*calls+len(names))
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "\tmedian\tmin\tmax\tallocs\tto fastest peer\tadmits in a true window\t")
	for c := range all {
		ratios := make([]float64, rounds)
		for r := range rounds {
			fastest := results[c][r]
			first := true
			for p := range all {
				if all[p].peer && all[p].limits == all[c].limits && (first || results[p][r] < fastest) {
					fastest, first = results[p][r], false
				}
			}
			ratios[r] = results[c][r] / fastest
		}
		fmt.Fprintf(out, "%s\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t%s\t\n", all[c].name,
			median(results[c]), slices.Min(results[c]), slices.Max(results[c]), allocs[c], median(ratios), all[c].guarantee)
	}
	out.Flush()
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// order is the random order in which keys are hit, the same for all.
func order(keys, calls int) []int32 {
	seq := make([]int32, calls)
	state := uint64(1)
	for i := range seq {
		state = state*6364136223846793005 + 1442695040888963407
		seq[i] = int32((state >> 33) % uint64(keys))
	}
	return seq
}

var sequences = map[[2]int][]int32{}

// run hits keys from as many goroutines as there are cores, and returns
// nanoseconds and allocations per call. It panics if a call was refused: then
// something else was measured.
func run(hit func(i int) bool, names []string, calls, cores int) (ns, allocs float64) {
	size := [2]int{len(names), calls}
	if sequences[size] == nil {
		sequences[size] = order(len(names), calls)
	}
	seq := sequences[size]
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan bool, cores)
	start := time.Now()
	for c := range cores {
		go func() {
			ok := true
			for _, i := range seq[c*len(seq)/cores : (c+1)*len(seq)/cores] {
				ok = hit(int(i)) && ok
			}
			done <- ok
		}()
	}
	for range cores {
		if !<-done {
			panic("bench: a call was refused")
		}
	}
	spent := time.Since(start)
	runtime.ReadMemStats(&after)
	return float64(spent.Nanoseconds()) / float64(calls), float64(after.Mallocs-before.Mallocs) / float64(calls)
}

// warm hits every key once.
func warm(hit func(i int) bool, names []string) {
	for i := range names {
		if !hit(i) {
			panic("bench: a call was refused")
		}
	}
}

// copies are the same keys elsewhere in memory: a key comes with a request, and
// is never the very string that it was first seen as. With that string itself,
// a map compares pointers.
func copies(names []string) []string {
	same := make([]string, len(names))
	for i, name := range names {
		same[i] = strings.Clone(name)
	}
	return same
}

func makeKeys(n int) []string {
	names := make([]string, n)
	seen := make(map[string]bool, n)
	for i := range names {
		names[i] = fmt.Sprintf("ip:10.%d.%d.%d", i>>16, i>>8&255, i&255)
		if seen[names[i]] {
			panic("bench: keys are not distinct")
		}
		seen[names[i]] = true
	}
	return names
}
