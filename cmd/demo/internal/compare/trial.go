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
	weighed, untold := map[int]int64{}, false
	var times stopwatch
	next := t.sample.events
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
		times.add(took, to-from)
		t.c.given += int64(to - from)
		if from = to; len(next) > 0 && int(next[0]) == to-1 {
			key := int(t.log.events[to-1].key)
			hits := t.hits(nil, key, number)
			weighed[key], err = algorithm.weigh(ctx, t.log.keys[key], hits)
			if next = next[1:]; refused(err) {
				untold, next = true, nil
			} else if err != nil {
				return a, fmt.Errorf("%s: %w", a.Name, err)
			}
		}
	}
	if err := algorithm.account(ctx, &a, t.log, t.admitted(number)); err != nil {
		return a, fmt.Errorf("%s: %w", a.Name, err)
	}
	for _, key := range t.sample.keys {
		a.BytesPerKey += float64(weighed[key]) / float64(len(t.sample.keys))
	}
	a.BytesWorstKey = weighed[t.sample.worst]
	if untold {
		a.BytesPerKey, a.BytesWorstKey, a.BytesMeasured = 0, 0, "not told by the server"
	}
	a.NanosPerEvent = times.median()
	return a, nil
}

// stopwatch is the times of chunks.
type stopwatch struct {
	chunks []float64 // nanoseconds an event
	part   time.Duration
	events int // in part
}

// add adds the duration of a few events. Fewer events than a chunk, cut short by
// the weighing of a key, go with the next events.
func (s *stopwatch) add(took time.Duration, events int) {
	s.part, s.events = s.part+took, s.events+events
	if s.events >= chunk {
		s.flush()
	}
}

func (s *stopwatch) flush() {
	s.chunks = append(s.chunks, float64(s.part.Nanoseconds())/float64(s.events))
	s.part, s.events = 0, 0
}

// median is the median of all chunks.
func (s *stopwatch) median() float64 {
	if len(s.chunks) == 0 {
		s.flush()
	}
	slices.Sort(s.chunks)
	return s.chunks[len(s.chunks)/2]
}

// decide decides the events in [from, to).
func (t *trial) decide(ctx context.Context, algorithm algorithm, from, to, number int) (time.Duration, error) {
	began := time.Now()
	for i := from; i < to; i++ {
		e := &t.log.events[i]
		t.c.now = time.UnixMicro(e.at)
		allowed, delay, err := algorithm.take(ctx, t.log.keys[e.key])
		if err != nil {
			return 0, fmt.Errorf("event %d: %w", i+1, err)
		}
		if allowed {
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
	from := len(dst)
	dst = t.log.hits(dst, key, t.admitted(number))
	if delays := t.delays[number]; delays != nil {
		for i, event := range t.log.of(key) {
			dst[from+i].At = dst[from+i].At.Add(delays[event])
		}
	}
	return dst
}

// judge fills in the measures of all decisions. The result is the key with the
// largest differences between the fullest windows of the algorithms; among
// equals, the key with the most hits.
func (t *trial) judge(ctx context.Context, all []Algorithm) (widest int, err error) {
	var log oracle.Log
	var hits []Hit
	most := int64(-1)
	sums := make([]Measures, len(all))
	for key := range t.log.keys {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		least, worst := int64(math.MaxInt64), int64(0)
		for i := range all {
			hits = t.hits(hits[:0], key, i)
			m := judge(&log, hits, t.limit)
			sums[i].add(m)
			least, worst = min(least, m.Worst), max(worst, m.Worst)
		}
		if spread := worst - least; spread > most || spread == most && len(t.log.of(key)) > len(t.log.of(widest)) {
			most, widest = spread, key
		}
	}
	for _, bits := range t.decided {
		for i := range all {
			if bits>>i&1 != bits&1 {
				all[i].Differently++
			}
		}
	}
	for i, m := range sums {
		a := &all[i]
		a.Admitted, a.WronglyAdmitted, a.WronglyDenied = m.Admitted, m.WronglyAdmitted, m.WronglyDenied
		a.Relative = float64(m.Admitted) / float64(sums[0].Admitted)
		a.WorstWindow = float64(m.Worst) / float64(t.limit.Max)
		a.Delayed = int64(len(t.delays[i]))
		var sum time.Duration
		for _, delay := range t.delays[i] {
			sum += delay
			a.LongestDelay = max(a.LongestDelay, delay.Seconds())
		}
		if a.Delayed > 0 {
			a.MeanDelay = sum.Seconds() / float64(m.Admitted)
		}
	}
	return widest, nil
}
