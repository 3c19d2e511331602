package ticket

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/tiers"
)

// survey is a key of a call in one try or look, and the buckets of the key that are
// known by now. The answers are written into the windows, and a Finding says what
// they mean.
type survey struct {
	p       *Protocol
	call    *Call             // the question, which a survey does not change
	keys    []backend.TakeKey // key alone
	key     *backend.TakeKey
	plan    *Plan
	request backend.Request // key, ladder, label and deadline of each trip
	added   []backend.Slot  // the additions of a try
	times   int64           // how often N is added, and later how often it has room
	windows []window
	known   Counts
	now     int64 // the last reading of the clock
}

// window is a limit in a survey.
type window struct {
	*backend.Window // the limit, and the answer
	bounds
	cover  tiers.Cover // counts the window
	coarse bool        // cover begins with a whole bucket of the ticket tier, and not yet with its exact edge
	young  int64       // hits that others may still undo
	undone int64       // young hits above Max while calls of others are in flight: nobody need wait for them
}

// Finding is the result of a try or a look, for a key or for a whole call.
type Finding struct {
	Allowed   bool
	Late      bool // a Charge was confirmed later than Settle
	room      bool // refused, but with all hits taken back there is room
	byOlder   bool // refused by older hits alone, as far as a single look can tell
	over      bool // more hits are counted than can remain when all calls have ended
	contended bool // calls of others were seen in flight
	looked    bool // by reading alone
}

// survey returns the survey of key i of a call.
func (p *Protocol) survey(c *Call, i int) *survey {
	key := &c.Keys[i]
	s := &survey{p: p, call: c, keys: c.Keys[i : i+1], key: key, plan: c.Plans[i], times: 1, windows: make([]window, len(key.Windows)),
		request: backend.Request{Key: string(key.Key), Ladder: key.Ladder, Now: c.Now, Deadline: c.Deadline, AnyLabel: c.AnyLabel}}
	for j := range s.windows {
		w := &key.Windows[j]
		s.windows[j] = window{Window: w, bounds: s.plan.bounds(w, c.Label())}
	}
	return s
}

func (s *survey) label() int64 { return s.request.Now.UnixNano() }

// look reads the counts of all windows. With details, look reads until the
// answer is exact for an allowed call as well.
func (s *survey) look(ctx context.Context, details, contended bool) (Finding, error) {
	s.now = s.label()
	var all tiers.Cover
	for i := range s.windows {
		w := &s.windows[i]
		w.cover = s.plan.whole(nil, s.now, w.bounds)
		all = append(all, w.cover...)
	}
	next := s.next()
	if err := s.read(ctx, append(append(all, s.youngRuns()...), next...)); err != nil {
		return Finding{}, err
	}
	for _, run := range next {
		if s.known.At(run.Width, run.First) > 0 && s.p.seeAhead(s.call, s.plan, tiers.Bucket{Width: run.Width, Index: run.First}) {
			break
		}
	}
	fits := s.judge()
	s.countYoung(contended)
	over := false
	if details || !fits {
		over = s.refine(ctx)
	} else {
		s.answer(false) // of a key that fits, should another key deny
	}
	return s.find(contended, over), nil
}

// next returns the first bucket of each tier beyond Skew, to be read next to the
// covers of a look; of a store with an atomic step, and in this process, none.
func (s *survey) next() (all tiers.Cover) {
	if s.p.atomic != nil || s.p.local {
		return nil
	}
	for i := range s.plan.tiers {
		b := s.plan.bucketAt(s.label()+s.plan.skew, i)
		all = append(all, tiers.Run{Width: b.Width, First: b.Index + 1, N: 1})
	}
	return all
}

// read reads the buckets of runs that are not known yet.
func (s *survey) read(ctx context.Context, runs tiers.Cover) error {
	read, err := Read(ctx, s.p.store, s.request, s.known.lacks(runs))
	s.known = append(s.known, read...)
	return err
}

// judge counts the windows, and reports whether all have room.
func (s *survey) judge() bool {
	fits := true
	for i := range s.windows {
		w := &s.windows[i]
		w.Count = s.known.Sum(w.cover)
		fits = fits && Excess(w.Window, s.key.N) <= 0
	}
	return fits
}

// youngRuns returns the buckets with hits that may still be undone at now.
func (s *survey) youngRuns() (runs tiers.Cover) {
	for i := range s.windows {
		runs = append(runs, s.plan.young(s.label(), s.now, s.windows[i].fine))
	}
	return runs
}

// countYoung counts young hits, without the hits that this process has confirmed.
// Counts above Max have two sources: hits of an Add or of another limit, which
// stay; or, in a crowd, calls of the last moments, which will be undone, and
// for which no one must wait.
func (s *survey) countYoung(contended bool) {
	for i, run := range s.youngRuns() {
		w := &s.windows[i]
		w.young, w.undone = 0, 0
		for j := range run.N {
			b := tiers.Bucket{Width: run.Width, Index: run.First + j}
			w.young = Plus(w.young, s.p.own.others(s.request.Key, b, s.known.At(b.Width, b.Index)))
		}
		if contended {
			w.undone = min(w.young, max(0, Excess(w.Window, 0)))
		}
	}
}

// find says what the counts of the windows mean. over says that some are known to
// be too high.
//
// Older and young hits are counted in different buckets, which in a crowd are read
// at different moments: if the count is above Max as well, a single look is no proof
// that older hits alone leave no room.
func (s *survey) find(contended, over bool) Finding {
	f := Finding{Allowed: true}
	for i := range s.windows {
		w := s.windows[i]
		older := *w.Window
		older.Count -= w.young
		f.Allowed = f.Allowed && Excess(w.Window, s.key.N) <= 0
		f.byOlder = f.byOlder || Excess(&older, s.key.N) > 0
		over = over || Excess(w.Window, 0) > 0
	}
	if f.over, f.contended = over, contended; f.Allowed {
		return Finding{Allowed: true}
	}
	return f
}

// answer writes FreedBy, of the windows without room, and Newest into the windows,
// as exactly as the known buckets allow. It returns the runs that would make the
// answer more exact, and whether a bucket held fewer hits than a moment ago: other
// calls have taken hits back. A guess is only to tell what to read on the way.
func (s *survey) answer(guess bool) (missing tiers.Cover, shrank bool) {
	for i := range s.windows {
		w := &s.windows[i]
		w.FreedBy, w.Newest = tiers.Bucket{}, tiers.Bucket{}
		if need := Excess(w.Window, s.key.N); need > 0 && s.key.N <= w.Max {
			d := descent{survey: s, window: w, guess: guess, need: max(1, need-w.undone)}
			w.FreedBy = d.from(w.cover)
			missing, shrank = append(missing, d.missing...), shrank || d.shrank
		}
		d := descent{survey: s, window: w, guess: guess, need: lastHit}
		w.Newest = d.from(w.cover)
		missing = append(missing, d.missing...)
	}
	return missing, shrank
}

// refine reads until the answer is exact, and reports whether a bucket held fewer
// hits than a moment ago. An answer without the last reads is coarse: later than
// needed, never too early.
func (s *survey) refine(ctx context.Context) (shrank bool) {
	s.request.AnyLabel = true // buckets dropped by the store since no longer matter
	for {
		var missing tiers.Cover
		missing, shrank = s.answer(false)
		if len(missing) == 0 || s.read(ctx, missing) != nil {
			return shrank
		}
	}
}

// descent is the search for a bucket of the finest tier of a window: for the bucket
// in which the sum of the cover, oldest bucket first, reaches need, or for the last
// bucket with a hit.
type descent struct {
	*survey
	*window
	need    int64 // or lastHit
	guess   bool
	missing tiers.Cover // the runs that are needed and not known
	shrank  bool        // a bucket holds less than the sum of its finer buckets once was
}

// lastHit is the need of a descent to the last hit.
const lastHit = math.MaxInt64

// from goes from a cover down to the bucket of the finest tier. Where a finer tier
// is not known, the result is the last bucket of the finest tier inside the known
// coarser bucket; the zero Bucket without any hit.
func (d *descent) from(runs tiers.Cover) tiers.Bucket {
	at, count := d.pick(runs)
	if count == 0 {
		return tiers.Bucket{}
	}
	ladder := d.plan.tiers
	for i := slices.IndexFunc(ladder, func(t tiers.Tier) bool { return t.Width == at.Width }); i > d.fine && !d.inPeriod(at); i-- {
		children := childrenOf(at, ladder[i-1].Width)
		lacks, held := d.lacks(children, count)
		if d.missing = append(d.missing, lacks...); len(lacks) > 0 && !(d.guess && held) {
			break
		}
		searched := d.need != lastHit
		if at, count = d.pick(tiers.Cover{children}); searched && d.need == lastHit {
			d.shrank = true
		}
	}
	return d.plan.last(at, d.fine)
}

// inPeriod reports whether the bucket leaves its window with the end of a calendar
// period: no finer bucket leaves earlier.
func (w *window) inPeriod(b tiers.Bucket) bool { return w.calendar && b.End().UnixNano() <= w.end }

// childrenOf returns the buckets of a finer width that make up a bucket.
func childrenOf(b tiers.Bucket, width time.Duration) tiers.Run {
	ratio := int64(b.Width / width)
	return tiers.Run{Width: width, First: b.Index * ratio, N: ratio}
}

// pick returns the bucket of runs in which need is met, and its count, and leaves
// the rest of need; or, if there are fewer hits, the last bucket with a hit, and
// from there on it is the last hit that is needed.
func (d *descent) pick(runs tiers.Cover) (at tiers.Bucket, count int64) {
	last := runs[len(runs)-1]
	at = tiers.Bucket{Width: last.Width, Index: last.First + last.N - 1}
	for _, run := range runs {
		for i := range run.N {
			n := d.known.At(run.Width, run.First+i)
			if n == 0 {
				continue
			}
			at, count = tiers.Bucket{Width: run.Width, Index: run.First + i}, n
			if n >= d.need {
				return at, count
			}
			if d.need != lastHit {
				d.need -= n
			}
		}
	}
	d.need = lastHit
	return at, count
}

// lacks returns what must be read of the children of a bucket with count hits,
// to find one of them: first the children that a clock has reached; where the last
// hit is looked for, no children before the last known hit. held reports whether
// the known children hold so many hits, which is a hint and no proof: hits that
// may still be undone come to a child before they come to the bucket.
func (d *descent) lacks(children tiers.Run, count int64) (missing tiers.Cover, held bool) {
	var known, latest int64
	for j := range children.N {
		if n := d.known.At(children.Width, children.First+j); n > 0 {
			known, latest = Plus(known, n), j
		}
	}
	held = known >= count
	if d.need == lastHit && known > 0 {
		children.First, children.N, count = children.First+latest, children.N-latest, known
	}
	reached := children
	reached.N = min(children.N, max(0, tiers.Index(d.now+d.plan.skew, children.Width)-children.First+1))
	missing = d.known.lacks(tiers.Cover{reached})
	if len(missing) == 0 && known < count {
		missing = d.known.lacks(tiers.Cover{children})
	}
	return missing, held
}
