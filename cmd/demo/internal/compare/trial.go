package compare

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
	"github.com/abacus-go/abacus/tiers"
)

// trial is a comparison under a single limit.
type trial struct {
	c       *Comparison
	log     *Log
	limit   counter.Limit
	sample  sample
	decided []uint32                     // by event: bit i is set if algorithm i has admitted it
	delays  [32]map[uint32]time.Duration // by algorithm and event, where above zero
	weighed map[int]int64                // by key of the sample: the bytes under the algorithm that ran last
}

// sample is the set of weighed keys. A key is weighed right after the last hit,
// before the key's state may be dropped.
type sample struct {
	keys   []int    // evenly spaced over all keys
	worst  int      // the key with the most hits, in keys or not
	events []uint32 // last hit of each of keys and of worst, ascending
}

func (l *Log) sample(most int) (s sample) {
	n := min(most, len(l.keys))
	for i := range n {
		s.keys = append(s.keys, i*len(l.keys)/n)
	}
	for k := range l.keys {
		if len(l.of(k)) > len(l.of(s.worst)) {
			s.worst = k
		}
	}
	for _, k := range append([]int{s.worst}, s.keys...) {
		of := l.of(k)
		s.events = append(s.events, of[len(of)-1])
	}
	slices.Sort(s.events)
	s.events = slices.Compact(s.events)
	return s
}

// chunk is the number of events between two readings of the clock: few, so that
// most chunks are free of the machine's other work.
const chunk = 64

// run gives the log to a candidate, alone and after a garbage collection, so that
// neither time nor memory is shared with the candidate before.
func (t *trial) run(ctx context.Context, number int, candidate candidate) (a Algorithm, err error) {
	a = Algorithm{Name: candidate.name, Source: candidate.source, Worst: candidate.worst, Default: candidate.name == "abacus "+tiers.Default.String()}
	algorithm, err := candidate.open(ctx, t.c, t.limit)
	if err != nil {
		return a, err
	}
	defer func() { err = cmp.Or(err, algorithm.clean(ctx, t.log)) }()
	runtime.GC()
	untold := false
	t.weighed = map[int]int64{}
	var times []float64 // of chunks, nanoseconds an event
	var spent time.Duration
	given, next := 0, t.sample.events
	for from := 0; from < len(t.log.events); {
		if t.c.cfg.Progress != nil && from%1024 < chunk {
			t.c.cfg.Progress(a.Name, t.c.given)
		}
		to := min(from+chunk, len(t.log.events))
		if len(next) > 0 {
			to = min(to, int(next[0])+1)
		}
		took, err := t.decide(ctx, algorithm, from, to, number)
		if err != nil {
			return a, fmt.Errorf("%s: %w", a.Name, err)
		}
		t.c.given += int64(to - from)
		// Fewer events than a chunk, cut short by the weighing of a key, go with the next.
		if spent, given = spent+took, given+to-from; given >= chunk || len(times) == 0 && to == len(t.log.events) {
			times = append(times, float64(spent.Nanoseconds())/float64(given))
			spent, given = 0, 0
		}
		if from = to; len(next) > 0 && int(next[0]) == to-1 {
			key := int(t.log.events[to-1].key)
			hits := t.hits(nil, key, number)
			t.weighed[key], err = algorithm.weigh(ctx, t.log.keys[key], hits)
			if next = next[1:]; refused(err) {
				untold, next = true, nil
			} else if err != nil {
				return a, fmt.Errorf("%s: %w", a.Name, err)
			}
		}
	}
	cost, counted, err := algorithm.cost(ctx, t.log, t.admitted(number))
	if err != nil {
		return a, fmt.Errorf("%s: %w", a.Name, err)
	}
	n := float64(t.log.Events)
	a.ReadsPerEvent, a.WritesPerEvent, a.TripsPerEvent, a.Counted = float64(cost.Reads)/n, float64(cost.Writes)/n, float64(cost.Trips)/n, counted
	a.BytesMeasured = algorithm.measured
	for _, key := range t.sample.keys {
		a.BytesPerKey += float64(t.weighed[key]) / float64(len(t.sample.keys))
	}
	a.BytesWorstKey = t.weighed[t.sample.worst]
	if untold {
		a.BytesPerKey, a.BytesWorstKey, a.BytesMeasured = 0, 0, "not told by the server"
	}
	slices.Sort(times)
	a.NanosPerEvent = times[len(times)/2]
	return a, nil
}

// decide decides the events in [from, to).
func (t *trial) decide(ctx context.Context, algorithm *algorithm, from, to, number int) (time.Duration, error) {
	began := time.Now()
	for i := from; i < to; i++ {
		e := &t.log.events[i]
		t.c.now = time.UnixMicro(e.at)
		v, delay, err := algorithm.take(ctx, t.log.keys[e.key])
		if err != nil {
			return 0, fmt.Errorf("event %d: %w", i+1, err)
		}
		if v.Allowed {
			t.decided[i] |= 1 << number
		}
		if delay > 0 {
			if t.delays[number] == nil {
				t.delays[number] = map[uint32]time.Duration{}
			}
			t.delays[number][uint32(i)] = delay
		}
	}
	return time.Since(began), nil
}

// admitted returns the decisions of algorithm number.
func (t *trial) admitted(number int) func(event uint32) bool {
	return func(event uint32) bool { return t.decided[event]&(1<<number) != 0 }
}

// hits appends the hits of a key with the decisions of algorithm number. An admitted
// hit is at the time of its leaving.
func (t *trial) hits(dst []Hit, key, number int) []Hit {
	for _, i := range t.log.of(key) {
		dst = append(dst, Hit{t.log.at(i).Add(t.delays[number][i]), t.admitted(number)(i)})
	}
	return dst
}

// judge fills in the measures of all decisions. The result is the key with the
// largest differences between the fullest windows of the algorithms; among
// equals, the key with the most hits.
func (t *trial) judge(ctx context.Context, all []Algorithm) (widest int, err error) {
	var log oracle.Log
	var hits []Hit
	most, fullest := int64(-1), make([]int64, len(all))
	for key := range t.log.keys {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		least, worst := int64(math.MaxInt64), int64(0)
		for i := range all {
			hits = t.hits(hits[:0], key, i)
			n := all[i].judge(&log, hits, t.limit)
			least, worst, fullest[i] = min(least, n), max(worst, n), max(fullest[i], n)
		}
		if spread := worst - least; spread > most || spread == most && len(t.log.of(key)) > len(t.log.of(widest)) {
			most, widest = spread, key
		}
	}
	for i := range all {
		a, sum := &all[i], time.Duration(0)
		for _, bits := range t.decided {
			a.Differently += int64(bits>>i&1 ^ bits&1)
		}
		for _, delay := range t.delays[i] {
			sum += delay
			a.LongestDelay = max(a.LongestDelay, delay.Seconds())
		}
		a.Delayed, a.MeanDelay = int64(len(t.delays[i])), sum.Seconds()/float64(max(1, a.Admitted))
		a.Relative = float64(a.Admitted) / float64(all[0].Admitted)
		a.WorstWindow = float64(fullest[i]) / float64(t.limit.Max)
	}
	return widest, nil
}

// Hit is an event of a key, with an algorithm's decision.
type Hit struct {
	At       time.Time
	Admitted bool
}

// judge adds decisions about the hits of a key, in the order of the decisions, to the
// measures of a, leaves the admitted hits in log, and returns how many of them are in the
// fullest window of length Per, both ends included. A decision is right or wrong by
// the algorithm's own history: a hit at t is to be admitted if fewer than Max
// earlier admitted hits are at t-Per or later. As in package oracle, a hit exactly
// Per old still counts, and so does an earlier hit with a later stamp.
func (a *Algorithm) judge(log *oracle.Log, hits []Hit, limit counter.Limit) (worst int64) {
	log.Reset()
	limits := counter.Limits{limit}
	for _, hit := range hits {
		right := oracle.Judge{}.Exact(log, hit.At, 1, limits)
		switch {
		case hit.Admitted && !right:
			a.WronglyAdmitted++
		case !hit.Admitted && right:
			a.WronglyDenied++
		}
		if hit.Admitted {
			log.Add(hit.At, 1)
		}
	}
	a.Admitted += log.Total()
	return log.Worst(limit.Per)
}
