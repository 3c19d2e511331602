package backendtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/counter"
)

func tooLate(s *subject) {
	s.add(dayLadder, "k", noon, 5)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for _, how := range []struct {
		name     string
		ctx      context.Context
		deadline time.Time
	}{
		{"a cancelled context", cancelled, time.Time{}},
		{"a cancelled context and a deadline to come", cancelled, time.Now().Add(enough)},
		{"an expired context", expired, time.Time{}},
		{"a deadline that has passed", context.Background(), time.Now().Add(-time.Second)},
	} {
		for what, n := range map[string]int64{"an addition": 3, "a taking back": -1, "a reading": 0} {
			op := &backend.Request{Key: s.key("k"), Ladder: dayLadder, Now: noon, Deadline: how.deadline, N: n}
			if n != 0 {
				op.Add = chain(dayLadder, noon, 0)
			} else {
				op.Read = append(op.Read, span(time.Hour, noon.Unix()/3600, 1))
			}
			fails(what+" under "+how.name, func() error { return s.Do(how.ctx, op) })
			same("slots of "+what+" under "+how.name, countsOf(op.Add), []int64{0})
		}
		f := s.forgetting(dayLadder, "k", noon, noon.UnixNano(), time.Hour)
		f.Deadline = how.deadline
		fails("a Forget under "+how.name, func() error { return s.Forget(how.ctx, f) })
		fails("asking what is remembered under "+how.name, func() error {
			_, err := s.Forgotten(how.ctx, f)
			return err
		})
		if s.taker == nil {
			continue
		}
		take := s.taking(dayLadder, noon, 3, 0, demand{key: "k", limits: counter.Limits{{Max: 100, Per: time.Hour}}})
		take.Deadline = how.deadline
		fails("a step under "+how.name, func() error { return s.taker.Take(how.ctx, take) })
	}
	// A request sent all the same may land a little later.
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		during(func() { s.expect(dayLadder, "k", noon, noon, 5) }, "after calls that were too late to begin")
		during(func() { s.forgotten("k", noon, 0) }, "after Forgets that were too late to begin")
	}
}

// fails holds a call to return an error, and soon.
func fails(what string, call func() error) {
	within(enough/2, what, func() {
		if call() == nil {
			failf("%s returned no error", what)
		}
	})
}

// cutShort has calls that are cancelled under way beside other calls: confirmed
// additions are there, additions never attempted are not, and nobody gets an answer
// of another call.
func cutShort(s *subject) {
	callers, calls := 16, min(60, 240/s.thrift)
	var certain [3]atomic.Int64
	var attempts atomic.Int64
	together(callers, func(i int) {
		r := rand.New(rand.NewPCG(s.seed, uint64(i)))
		own, sum := fmt.Sprint("own", i), int64(0)
		for j := range calls {
			attempts.Add(1)
			s.cutCall(time.Duration(r.Int64N(int64(500*time.Microsecond))), j%2 == 0, &certain)
			before := certain[2].Load()
			shared := s.get(dayLadder, "k", noon, noon)
			if shared[2] < before {
				failf("the hour counts %d when %d additions were confirmed", shared[2], before)
			}
			sum++
			got := s.add(dayLadder, own, noon, 1)
			same("a call beside others that are cut short", got, []int64{sum})
			during(func() { s.expect(dayLadder, own, noon, noon, sum) }, "beside others that are cut short")
		}
	})
	got := s.get(dayLadder, "k", noon, noon)
	for k, n := range got {
		if n < certain[k].Load() || n > attempts.Load() {
			failf("tier %d counts %d: %d additions were confirmed, of %d", k, n, certain[k].Load(), attempts.Load())
		}
	}
}

// cutCall adds 1, for as long as wait at most, and counts the confirmed additions by
// tier.
func (s *subject) cutCall(wait time.Duration, cancels bool, certain *[3]atomic.Int64) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	op := &backend.Request{Key: s.key("k"), Ladder: dayLadder, Now: noon, Deadline: time.Now().Add(enough), N: 1, Add: chain(dayLadder, noon, 0)}
	op.Read = append(op.Read, span(time.Second, noon.Unix()-100, 200))
	if cancels {
		time.AfterFunc(wait, cancel)
	} else {
		op.Deadline = time.Now().Add(wait)
	}
	var failed error
	within(enough/2, "a call cut short", func() { failed = s.Do(ctx, op) })
	for k, slot := range op.Add {
		if slot.Count > 0 {
			certain[k].Add(1)
		} else if failed == nil {
			failf("a call without an error has %v in its slots", countsOf(op.Add))
		}
	}
}

// ownership writes over every request as soon as the call has returned, and looks
// for anybody that still reads or writes the request. The race detector sees more.
func ownership(s *subject) {
	const callers, calls = 8, 60
	var mu sync.Mutex
	var spoilt []*backend.Request
	var attempts atomic.Int64
	together(callers, func(i int) {
		r := rand.New(rand.NewPCG(s.seed, uint64(i)))
		for j := range calls {
			ctx, cancel := context.WithCancel(context.Background())
			deadline := time.Now().Add(enough)
			switch wait := time.Duration(r.Int64N(int64(300 * time.Microsecond))); j % 4 {
			case 1, 3:
				time.AfterFunc(wait, cancel)
			case 2:
				deadline = time.Now().Add(wait)
			}
			if s.taker != nil && j%4 < 2 {
				take := s.taking(dayLadder, noon, 1, 0, demand{key: "step", limits: counter.Limits{{Max: 1e6, Per: time.Hour}, {Max: 1e6, Per: time.Minute}}})
				take.Deadline = deadline
				_ = s.taker.Take(ctx, take)
				spoilStep(take)
				copy(take.Keys[0].Key, s.key("spoi"))
			}
			op := &backend.Request{Key: s.key("k"), Ladder: dayLadder, Now: noon, Deadline: deadline, N: 1, Add: chain(dayLadder, noon, 0),
				Read: []backend.Span{span(time.Second, noon.Unix()-100, 200), span(time.Minute, noon.Unix()/60-5, 10)}}
			attempts.Add(1)
			_ = s.Do(ctx, op)
			s.spoil(op)
			cancel()
			mu.Lock()
			spoilt = append(spoilt, op)
			mu.Unlock()
		}
	})
	for _, name := range []string{"spoilt", "spoi"} {
		for _, at := range []time.Time{noon, noon.Add(time.Hour)} {
			during(func() { s.expect(dayLadder, name, at, noon, 0) }, "a key that was written into the op after Do had returned")
		}
	}
	during(func() { s.expect(dayLadder, "k", noon.Add(time.Hour), noon, 0) }, "buckets that were written into the op after Do had returned")
	got := s.get(dayLadder, "k", noon, noon)
	if got[0] > attempts.Load() || got[2] > attempts.Load() {
		failf("%v were counted of %d: the N that was written into the op after Do had returned", got, attempts.Load())
	}
	untouched(spoilt)
}

// untouched stops the case if a request is not as spoil has left it.
func untouched(spoilt []*backend.Request) {
	for _, op := range spoilt {
		for _, slot := range op.Add {
			if slot.Count != garbage {
				failf("a slot was written to after Do had returned: %d", slot.Count)
			}
		}
		for _, r := range op.Read {
			same("a span that was written to after Do had returned", r.Counts, []int64{garbage})
		}
	}
}

// spoil writes over op what must not be met again.
func (s *subject) spoil(op *backend.Request) {
	op.Key, op.N = s.key("spoilt"), 1_000_000
	op.Now, op.Deadline = op.Now.Add(time.Hour), time.Time{}
	for i := range op.Add {
		slot := &op.Add[i]
		slot.Index += int64(time.Hour / slot.Width)
		slot.Count, slot.TTL = garbage, time.Second
	}
	for i := range op.Read {
		r := &op.Read[i]
		r.First += int64(time.Hour / r.Width)
		for j := range r.Counts {
			r.Counts[j] = garbage
		}
	}
}

func spoilStep(t *backend.TakeRequest) {
	t.Allowed = true
	t.Now = t.Now.Add(time.Hour)
	for i := range t.Keys {
		t.Keys[i].N, t.Keys[i].Fits = 1_000_000, true
		for j := range t.Keys[i].Windows {
			w := &t.Keys[i].Windows[j]
			w.Count, w.Max, w.Reach = garbage, 0, time.Hour
		}
	}
}
