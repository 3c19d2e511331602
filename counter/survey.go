package counter

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/tiers"
)

// survey holds the known buckets of a key during a call: the cover of each
// window, and the counts read so far. The counts of windows come from a survey,
// and for a denial the bucket that must leave the window. That bucket is
// searched coarse first, then finer inside the coarse bucket, with another read
// for each level.
type survey struct {
	c       *Counter
	base    backend.Request  // key, ladder, label and deadline of all requests
	grace   time.Time        // deadline of the requests after a refusal
	n       int64            // hits to make room for
	windows []backend.Window // of the key
	bounds  []bounds         // bounds[i] of windows[i]
	covers  []tiers.Cover    // covers[i] counts windows[i]
	known   []backend.Span
	now     int64 // the last reading of the clock
	guess   bool  // an answer is only to tell what to read on the way

	contended     bool        // calls of others were seen in flight on the key
	shrank        bool        // a bucket holds less than a moment ago: other calls have taken hits back
	pending       []tiers.Run // pending[i] holds the buckets of windows[i] with hits that may still be taken back
	pendingCounts []int64     // pendingCounts[i] is the sum of pending[i]
	surplus       []int64     // surplus[i] is the part of pendingCounts[i] above Max, about to be taken back: nobody need wait for it
}

func (s *survey) label() int64 { return s.base.Now.UnixNano() }

// look reads the counts of all windows. With details, look reads until the
// answer is exact for an allowed call as well.
func (s *survey) look(ctx context.Context, details bool) error {
	label := s.label()
	s.covers, s.now = make([]tiers.Cover, len(s.windows)), label
	var all tiers.Cover
	for i, b := range s.bounds {
		s.covers[i] = s.c.plan.whole(nil, label, b)
		all = append(all, s.covers[i]...)
	}
	if s.c.queues != nil {
		all = append(all, s.pendingRuns(label)...)
	}
	next := s.next()
	all = append(all, next...)
	if err := s.fetch(ctx, all); err != nil {
		return err
	}
	s.lookAhead(next)
	for i := range s.windows {
		s.windows[i].Count = s.count(i)
	}
	s.countPending()
	if details || !s.fits() {
		s.refine(ctx)
	} else {
		s.answer() // of a key that fits, should another key deny
	}
	return nil
}

// fits tells whether all windows have room.
func (s *survey) fits() bool {
	for i := range s.windows {
		if plus(s.windows[i].Count, s.n) > s.windows[i].Max {
			return false
		}
	}
	return true
}

// pendingRuns returns the runs that may hold hits which at now may still be
// taken back.
func (s *survey) pendingRuns(now int64) tiers.Cover {
	s.pending = make([]tiers.Run, len(s.windows))
	for i := range s.windows {
		s.pending[i] = s.c.plan.pendingRun(s.label(), now, s.c.plan.ladder.At(s.windows[i].Finest).Width)
	}
	return s.pending
}

// countPending counts pending hits, without the hits that this process has
// confirmed. Counts above Max have two sources: hits of an Add or of another limit,
// which stay; or, in a crowd, calls of the last moments, which will be taken back,
// and for which nobody must wait.
func (s *survey) countPending() {
	if s.pending == nil {
		return
	}
	s.pendingCounts, s.surplus = make([]int64, len(s.pending)), nil
	for i, run := range s.pending {
		for j := range run.N {
			b := tiers.Bucket{Width: run.Width, Index: run.First + j}
			s.pendingCounts[i] = plus(s.pendingCounts[i], s.c.own.others(s.base.Key, b, s.at(b.Width, b.Index)))
		}
	}
	if s.contended {
		s.surplus = make([]int64, len(s.pending))
		for i := range s.surplus {
			s.surplus[i] = min(s.pendingCounts[i], max(0, s.windows[i].Count-s.windows[i].Max))
		}
	}
}

// deniedByOlder tells whether older hits alone leave no room. Older and pending
// hits are counted in different buckets, which in a crowd are read at different
// moments: if the count is above Max as well, a single look is no proof.
func (s *survey) deniedByOlder() bool {
	for i := range s.windows {
		w := &s.windows[i]
		old := w.Count
		if s.pendingCounts != nil {
			old -= s.pendingCounts[i]
		}
		if plus(old, s.n) > w.Max {
			return true
		}
	}
	return false
}

// overcounted tells whether more hits are counted than can remain when all
// calls have ended, now or at the begin of the walk for the bucket that must
// leave.
func (s *survey) overcounted() bool {
	more := s.shrank
	for i := range s.windows {
		w := &s.windows[i]
		more = more || plus(w.Count, s.n) > w.Max && w.Count > w.Max
	}
	return more
}

// count is the sum of cover i, of which all buckets are known.
func (s *survey) count(i int) int64 {
	var sum int64
	for _, run := range s.covers[i] {
		for j := range run.N {
			n := s.at(run.Width, run.First+j)
			sum = plus(sum, n)
		}
	}
	return sum
}

// at returns the count of a bucket, zero if the count is not known.
func (s *survey) at(width time.Duration, index int64) int64 {
	for k := range s.known {
		if span := &s.known[k]; span.Width == width && index >= span.First && index-span.First < int64(len(span.Counts)) {
			return span.Counts[index-span.First]
		}
	}
	return 0
}

// fetch reads the buckets of runs that are not known yet.
func (s *survey) fetch(ctx context.Context, runs tiers.Cover) error {
	spans := spansOf(unknown(s.known, runs))
	if len(spans) == 0 {
		return nil
	}
	r := s.base
	r.Read = spans
	if err := s.c.store.Do(ctx, &r); err != nil {
		return err
	}
	s.known = append(s.known, spans...)
	return nil
}

// unknown returns the parts of runs that no span holds.
func unknown(known []backend.Span, runs tiers.Cover) (missing tiers.Cover) {
	for _, r := range runs {
		for end := r.First + r.N; r.First < end; {
			next, held := end, false
			for k := range known {
				from := known[k].First
				to := from + int64(len(known[k].Counts))
				if known[k].Width != r.Width || to <= r.First {
					continue
				}
				if held = from <= r.First; held {
					next = min(end, to)
					break
				}
				next = min(next, from)
			}
			if !held {
				missing = append(missing, tiers.Run{Width: r.Width, First: r.First, N: next - r.First})
			}
			r.First = next
		}
	}
	return missing
}

// spansOf is the union of runs, with space for their counts.
func spansOf(runs tiers.Cover) []backend.Span {
	merged := cover.Merge(slices.Clone(runs))
	counts := make([]int64, merged.Reads())
	spans := make([]backend.Span, len(merged))
	for i, r := range merged {
		spans[i] = backend.Span{Width: r.Width, First: r.First, Counts: counts[:r.N:r.N]}
		counts = counts[r.N:]
	}
	return spans
}

// answer writes FreedBy, for the windows without room, and Newest into the
// windows, as exactly as the known buckets allow. It returns the runs that
// would make the answer more exact.
func (s *survey) answer() (missing tiers.Cover) {
	s.shrank = false
	for i := range s.windows {
		w := &s.windows[i]
		w.FreedBy, w.Newest = tiers.Bucket{}, tiers.Bucket{}
		if need := plus(w.Count, s.n) - w.Max; need > 0 && s.n <= w.Max {
			if s.surplus != nil {
				need = max(1, need-s.surplus[i])
			}
			w.FreedBy, missing = s.walk(i, need, missing)
		}
		w.Newest, missing = s.newest(i, missing)
	}
	return missing
}

// walk goes through cover i, oldest bucket first, until it has met need hits, and
// then descends into the bucket reached; or it finds the newest bucket, if there
// are fewer hits. It returns a bucket of the finest tier of the window, and missing
// with the runs that are needed but unknown. Where a finer tier is unknown, the
// result is the last bucket of the finest tier inside the known coarser bucket.
func (s *survey) walk(i int, need int64, missing tiers.Cover) (tiers.Bucket, tiers.Cover) {
	for _, run := range s.covers[i] {
		for j := range run.N {
			count := s.at(run.Width, run.First+j)
			if count >= need {
				return s.descend(i, tiers.Bucket{Width: run.Width, Index: run.First + j}, count, need, missing)
			}
			need -= count
		}
	}
	return s.newest(i, missing)
}

// newest is walk for the last bucket with a hit.
func (s *survey) newest(i int, missing tiers.Cover) (tiers.Bucket, tiers.Cover) {
	for _, run := range slices.Backward(s.covers[i]) {
		for j := run.N - 1; j >= 0; j-- {
			if count := s.at(run.Width, run.First+j); count > 0 {
				return s.descend(i, tiers.Bucket{Width: run.Width, Index: run.First + j}, count, math.MaxInt64, missing)
			}
		}
	}
	return tiers.Bucket{}, missing
}

// descend goes from a bucket of cover i with count hits down to the bucket of the
// finest tier of the window in which need is met, or to the last bucket with a hit.
func (s *survey) descend(i int, at tiers.Bucket, count, need int64, missing tiers.Cover) (tiers.Bucket, tiers.Cover) {
	ladder, finest, last := s.c.plan.ladder, s.windows[i].Finest, need == math.MaxInt64
	tier := 0
	for ladder.At(tier).Width != at.Width {
		tier++
	}
	for ; tier > finest; tier-- {
		width := ladder.At(tier - 1).Width
		children := tiers.Run{Width: width, First: at.Index * int64(at.Width/width), N: int64(at.Width / width)}
		lacks, held := s.lacks(children, count, last)
		missing = append(missing, lacks...)
		if len(lacks) > 0 && !(s.guess && held) {
			return s.last(at, finest), missing
		}
		met := last
		at, count = tiers.Bucket{Width: width, Index: children.First + children.N - 1}, 0
		for j := range children.N {
			n := s.at(width, children.First+j)
			if n == 0 {
				continue
			}
			at.Index, count = children.First+j, n
			if n >= need {
				met = true
				break
			}
			need -= n
		}
		s.shrank = s.shrank || !met
	}
	return s.last(at, finest), missing
}

// lacks returns what must be read of the children of a bucket with count hits,
// to find one of them: first the children that a clock has reached; where the last
// hit is looked for, no children before the last known hit. held tells whether
// the known children hold so many hits, which is a hint and no proof: hits that
// may still be taken back come to a child before they come to the bucket.
func (s *survey) lacks(children tiers.Run, count int64, last bool) (missing tiers.Cover, held bool) {
	var known, latest int64
	for j := range children.N {
		if n := s.at(children.Width, children.First+j); n > 0 {
			known, latest = plus(known, n), j
		}
	}
	held = known >= count
	if last && known > 0 {
		children.First, children.N, count = children.First+latest, children.N-latest, known
	}
	reached := children
	reached.N = min(children.N, max(0, tiers.Index(s.now+s.c.plan.skew, children.Width)-children.First+1))
	missing = unknown(s.known, tiers.Cover{reached})
	if len(missing) == 0 && known < count {
		missing = unknown(s.known, tiers.Cover{children})
	}
	return missing, held
}

// last is the bucket of tier finest that ends together with at, or that holds a
// finer at.
func (s *survey) last(at tiers.Bucket, finest int) tiers.Bucket {
	width := s.c.plan.ladder.At(finest).Width
	return tiers.Bucket{Width: width, Index: tiers.Index((at.Index+1)*int64(at.Width)-1, width)}
}

// refine reads until the answer is exact. An answer without the last reads is
// coarse: later than needed, never too early.
func (s *survey) refine(ctx context.Context) {
	s.base.AnyLabel = true // buckets dropped by the store since no longer matter
	for missing := s.answer(); len(missing) > 0; missing = s.answer() {
		if s.fetch(ctx, missing) != nil {
			return
		}
	}
}

// plus adds counts, neither below zero, without wrapping.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
