package page_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/compare"
	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
)

// sampleSeed makes all samples: a failure is the same in every run.
const sampleSeed = 7

// kinds are algorithms with plausible measures: the excess in the fullest window,
// the share of wrong decisions, the memory, the cost.
var kinds = []struct {
	name, source, worst   string
	beyond, wrong         float64
	bytes, worstBytes     float64
	reads, writes, trips  float64
	nanos                 float64
	wronglyDenied, wobble float64
}{
	{name: "sliding log", source: "classic", worst: "N", bytes: 2140, worstBytes: 9200, reads: 1, writes: 0.61, nanos: 410},
	{name: "fixed window", source: "classic", worst: "2N", beyond: 0.98, wrong: 0.021, bytes: 56, worstBytes: 56, reads: 1, writes: 0.6, nanos: 95},
	{name: "fixed slots, 24", source: "classic", worst: "N", wronglyDenied: 0.013, bytes: 392, worstBytes: 424, reads: 24, writes: 0.6, nanos: 230, wobble: 0.08},
	{name: "sliding counter", source: "classic", worst: "2N", beyond: 0.31, wrong: 0.008, bytes: 72, worstBytes: 72, reads: 2, writes: 0.6, nanos: 110, wronglyDenied: 0.006},
	{name: "sliding decay", source: "classic", worst: "2N", beyond: 0.63, wrong: 0.017, bytes: 64, worstBytes: 64, reads: 1, writes: 1, nanos: 120, wronglyDenied: 0.004},
	{name: "token bucket", source: "classic", worst: "2N", beyond: 0.95, wrong: 0.034, bytes: 64, worstBytes: 64, reads: 1, writes: 0.63, nanos: 105},
	{name: "gcra", source: "classic", worst: "2N", beyond: 0.95, wrong: 0.034, bytes: 56, worstBytes: 56, reads: 1, writes: 0.63, nanos: 98},
	{name: "leaky bucket, meter", source: "classic", worst: "2N", beyond: 0.95, wrong: 0.0339, bytes: 64, worstBytes: 64, reads: 1, writes: 0.63, nanos: 101},
	{name: "leaky bucket, queue", source: "classic", worst: "2N", beyond: 0.06, wrong: 0.002, bytes: 64, worstBytes: 64, reads: 1, writes: 0.51, nanos: 122, wronglyDenied: 0.21},
	{name: "textbook tiers", source: "classic", worst: "1.04N", beyond: 0.04, wrong: 0.0003, bytes: 1100, worstBytes: 3900, reads: 57, writes: 1.8, nanos: 640},
	{name: "abacus 1s:1d, 1m:1d, 1h:1d", source: "abacus", worst: "N", wronglyDenied: 0.0002, bytes: 1240, worstBytes: 4300, reads: 56.2, writes: 1.8, nanos: 205},
	{name: "abacus 10m:1d, 1h:1d", source: "abacus", worst: "N", wronglyDenied: 0.0071, bytes: 310, worstBytes: 704, reads: 28.4, writes: 1.2, nanos: 170, wobble: 0.04},
}

// sample is a day of traffic through all kinds, under 100 hits a day, on memory
// or, with trips, on a server.
func sample(t testing.TB, trips float64) *compare.Report {
	t.Logf("seed %d", sampleSeed)
	rnd := rand.New(rand.NewPCG(sampleSeed, 1))
	const events, points, limit = 214_733, 500, 100
	from := time.Date(2026, 3, 2, 0, 0, 4, 0, time.UTC)
	r := &compare.Report{
		Log:   "access.log.gz",
		Limit: "100/d", Events: events, Keys: 5_312, From: from, To: from.Add(48*time.Hour - 9*time.Second), Store: "memory",
		Seen: eventlog.Seen{BadLines: 12, FirstBad: `line 881: "GET /": no time`}, RunsBack: "3s", Skew: "5s", Sample: 1000,
		LeftOut:   []compare.LeftOut{{Name: "abacus 1m:1h", Why: "its tiers are kept too briefly for 1d"}},
		Reference: kinds[0].name,
		Curve:     compare.Curve{Key: "signup of ip:203.0.113.9", Max: limit},
		Heat:      compare.Heat{Key: "signup of ip:203.0.113.9"},
	}
	for i := range points {
		r.Curve.Times = append(r.Curve.Times, from.Add(time.Duration(i)*r.To.Sub(from)/(points-1)))
	}
	for i, k := range kinds {
		admitted := 0.61 + 0.3*k.wrong - 0.4*k.wronglyDenied
		a := compare.Algorithm{
			Name: k.name, Source: k.source, Worst: k.worst,
			Admitted: int64(events * admitted), Relative: admitted / 0.61, WorstWindow: 1 + k.beyond,
			WronglyAdmitted: int64(events * k.wrong), WronglyDenied: int64(events * k.wronglyDenied),
			Differently: int64(events * 1.4 * (k.wrong + k.wronglyDenied)),
			BytesPerKey: k.bytes * (1 + 0.01*rnd.Float64()), BytesWorstKey: int64(k.worstBytes), BytesMeasured: "estimate of the heap", Counted: "states",
			ReadsPerEvent: k.reads, WritesPerEvent: k.writes, TripsPerEvent: trips, NanosPerEvent: k.nanos * (1 + 200*trips),
		}
		if a.Source == "abacus" {
			a.BytesMeasured, a.Counted = "16 bytes a bucket of its store", "buckets"
		}
		r.Algorithms = append(r.Algorithms, a)
		r.Curve.Counts = append(r.Curve.Counts, sampleCurve(rnd, points, limit, 1+k.beyond, k.wobble, i))
	}
	for h := range 24 {
		var row [60]int64
		for m := range row {
			rate := 0.4 + 3*math.Exp(-float64((h-14)*(h-14))/18)
			if h == 23 && m > 54 || h == 0 && m < 5 {
				rate = 60
			}
			row[m] = int64(rnd.ExpFloat64() * rate)
		}
		r.Heat.Hours = append(r.Heat.Hours, from.Truncate(time.Hour).Add(time.Duration(h)*time.Hour))
		r.Heat.Hits = append(r.Heat.Hits, row)
	}
	return r
}

// sampleCurve fills up to the limit, bursts beyond the limit around the middle,
// and falls back.
func sampleCurve(rnd *rand.Rand, points int, limit, worst, wobble float64, i int) []int64 {
	counts := make([]int64, points)
	for j := range counts {
		x := float64(j) / float64(points)
		v := limit * min(1, x*(4+float64(i%3)))
		if x > 0.5 && x < 0.98 {
			v = limit * (1 + (worst-1)*math.Sin(math.Pi*(x-0.5)/0.48))
		}
		v -= limit * (wobble*(1+math.Sin(40*x))/2 + 0.02*rnd.Float64())
		counts[j] = int64(max(0, v))
	}
	return counts
}

// edges are unusual reports that a page must survive, by name.
func edges(t testing.TB) map[string]*compare.Report {
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.FixedZone("CET", 3600))
	one := sample(t, 0)
	one.Algorithms, one.Curve.Counts = one.Algorithms[:1], one.Curve.Counts[:1]

	event := &compare.Report{
		Log: "one.csv", Limit: "1/s", Events: 1, Keys: 1, From: at, To: at, Store: "memory", Reference: "sliding log",
		Algorithms: []compare.Algorithm{
			{Name: "sliding log", Source: "classic", Admitted: 1, Relative: 1, WorstWindow: 1, BytesPerKey: 80},
			{Name: "gcra", Source: "classic", Admitted: 1, Relative: 1, WorstWindow: 1, BytesPerKey: 80},
		},
		Curve: compare.Curve{Key: "k", Max: 1, Times: []time.Time{at}, Counts: [][]int64{{1}, {1}}},
		Heat:  compare.Heat{Key: "k", Hours: []time.Time{at}, Hits: [][60]int64{{1}}},
	}

	untold := sample(t, 0)
	for i := range untold.Algorithms {
		untold.Algorithms[i].BytesPerKey, untold.Algorithms[i].BytesWorstKey = 0, 0
	}

	long := sample(t, 0)
	for i := range long.Algorithms {
		long.Algorithms[i].Name += " with a name that does not end " + string(make([]byte, 200)) + "Donaudampfschifffahrtsgesellschaft"
	}
	long.Log, long.Curve.Key, long.Heat.Key = string(make([]rune, 5000)), "ip:"+string(make([]rune, 5000)), "\u202eevil"

	month := sample(t, 1)
	month.Heat.Hours, month.Heat.Hits = nil, nil
	for h := range 720 {
		month.Heat.Hours = append(month.Heat.Hours, at.Add(time.Duration(h)*time.Hour))
		month.Heat.Hits = append(month.Heat.Hits, [60]int64{int64(h)})
	}

	return map[string]*compare.Report{
		"one algorithm": one, "one event": event, "memory that is not told": untold, "long names": long, "a month of heat": month,
	}
}
