package fallback_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/race"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter/fallback"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one")

func random(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: run again with -run '%s' -seed %d", seed, t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// over is a context that has ended: for a Close that carries nothing.
var over = func() context.Context {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	return over
}()

// In virtual time, limiters with local counters of their own decide on one store
// that fails in every way: before it has executed a call and after, with late
// answers and late executions, and with the loss of all its buckets. Limiters
// restart, clocks wander within Skew. In every window the admitted hits must
// keep the promise of docs/guarantees.md. In some worlds a day ends meanwhile.
func TestNeverOverWhileTheStoreFails(t *testing.T) {
	r := random(t)
	worlds := long.Rounds(60, 300)
	var all simTally
	for range worlds {
		w := newSimWorld(r.Uint64())
		if r.IntN(3) == 0 {
			w.calendar(r)
		}
		over := w.run(t)
		require.Empty(t, over, "%s", w)
		all.add(&w.simTally)
	}
	t.Logf("%d worlds: %+v", worlds, all)
	require.Positive(t, all.Local)
	require.Positive(t, all.Carried)
	require.Positive(t, all.Lost)
	require.Positive(t, all.Beyond, "no window was ever above Max: the store has not failed enough")
}

// simMistakes are rules of the local counter to leave out, each with seeds of worlds in
// which a window is then over.
var simMistakes = map[string][]uint64{
	"no mirror":                       {10701422321892523132, 12816133869163325434, 5160106361827226428},
	"pending hits are not held":       {3437990283191645451, 483083661279138706, 4419173886529087169},
	"emptied when the store is back":  {10593914013650916302, 7959379510567779436, 13839875232996736177},
	"carried hits leave":              {635138335454552610, 9467418238415655287, 1444357780820424592},
	"no reach beyond Per":             {15303589943119747868, 13109480874741684210, 8353585351228768091},
	"no reach for late answers":       {2562907775483568105, 5878551420806899203, 17909719287363030430},
	"superseded answers are believed": {11663501563624425401, 16027614460961346150, 4530080371408378688},
	"a carry is sent and not counted": {14754180335010081519, 6797787123660946112, 7719848857474684541},
	"hits without room are not noted": {843858426956737698, 15026910470138183746, 11511259307158496092},
}

// Without any one rule of the local counter the simulation finds a window that
// breaks the promise.
func TestEachRuleOfTheLocalCounterIsNeeded(t *testing.T) {
	if race.On {
		t.Skip("the mistakes are the test's own, and found without the race detector")
	}
	for mistake, seeds := range simMistakes {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			r := random(t)
			for worlds := range 3000 {
				seed := r.Uint64()
				if worlds < 4*len(seeds) { // the order of goroutines is not the seed's
					seed = seeds[worlds%len(seeds)]
				}
				w := newSimWorld(seed)
				w.mistaken(mistake)
				over := w.run(t)
				if over == "" {
					continue
				}
				t.Logf("found after %d worlds: %s", worlds+1, over)
				w = newSimWorld(seed)
				w.mistaken(mistake)
				w.mistake = ""
				require.Empty(t, w.run(t), "without the mistake")
				return
			}
			t.Fatal("the simulation does not see it")
		})
	}
}

// mistaken has the processes make a mistake, in a world that shows it.
func (w *simWorld) mistaken(mistake string) {
	w.mistake, w.room = mistake, 1<<14
	switch mistake {
	case "no reach for late answers": // rare: many late calls of one process
		w.simPace, w.processes, w.share, w.tickets, w.turns = late, 1, 1, false, 0
		w.callers, w.moods = 12, []string{"mixed", "slow"}
	case "hits without room are not noted":
		w.room = small
	case "superseded answers are believed": // rare: many calls of a process at once, not all executed
		w.processes, w.share, w.callers, w.moods = 1, 1, 12, []string{"mixed", "mixed", "well"}
	}
}

// simPace is the skew of the clocks, the patience of decisions, and that of the
// counters on the store.
type simPace struct{ skew, within, patience time.Duration }

var (
	skewed = simPace{300 * time.Millisecond, 20 * time.Millisecond, 150 * time.Millisecond}
	late   = simPace{50 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond} // answers, by more than the skew
)

// small is room for one key, or for two that do not grow.
const small = 40

// simWorld is a store, and limiters in several processes.
type simWorld struct {
	simPace
	seed      uint64
	rng       *rand.Rand
	processes int
	share     float64
	limits    []counter.Limits // of the kinds ip and user
	tickets   bool
	turns     int
	callers   int      // of each process
	moods     []string // of the store
	room      int      // of the local counters, in buckets
	mistake   string
	before    time.Duration // of the bubble, before the world begins

	store  *simStore
	mu     sync.Mutex
	log    []simHit
	losses []time.Time
	loads  []*simProcess
	simTally
}

type simTally struct{ Hits, Local, Carried, Dropped, Lost, Restarts, Refunded, Shed, Beyond int64 }

func (a *simTally) add(b *simTally) {
	a.Hits, a.Local, a.Carried, a.Dropped = a.Hits+b.Hits, a.Local+b.Local, a.Carried+b.Carried, a.Dropped+b.Dropped
	a.Lost, a.Restarts, a.Refunded, a.Shed, a.Beyond = a.Lost+b.Lost, a.Restarts+b.Restarts, a.Refunded+b.Refunded, a.Shed+b.Shed, a.Beyond+b.Beyond
}

// simHit is an admitted call.
type simHit struct {
	counter  int // the local counter: one for each life of a process
	key      counter.Key
	n        int64
	label    time.Time
	true     time.Time // the label, by a clock without error
	refunded bool
	local    bool // decided by the local counter
}

func newSimWorld(seed uint64) *simWorld {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &simWorld{seed: seed, rng: rng, processes: 1 + rng.IntN(3)}
	w.share = []float64{1, 0.5, 1 / float64(w.processes)}[rng.IntN(3)]
	menus := []string{"2/s", "3/2s", "4/3s", "2/s, 4/3s", "5/4s", "3/2s, 4/4s"}
	for range 2 {
		w.limits = append(w.limits, counter.MustLimits(menus[rng.IntN(len(menus))]))
	}
	w.simPace = []simPace{skewed, late}[rng.IntN(2)]
	w.tickets = rng.IntN(4) == 0
	w.turns = []int{0, 0, 1, 3}[rng.IntN(4)]
	w.room = []int{1 << 14, 1 << 14, small}[rng.IntN(3)]
	w.callers = []int{3, 3, 12}[rng.IntN(3)]
	w.moods = []string{"well", "well", "refuses", "loses answers", "late", "executes late", "slow", "slow", "mixed", "mixed"}
	if rng.IntN(3) == 0 {
		w.moods = []string{"slow", "slow", "slow", "well"}
	}
	return w
}

// calendar has limits by the calendar, and a day that ends within three seconds.
func (w *simWorld) calendar(r *rand.Rand) {
	menus := []string{"2 per day in UTC", "9 per day in UTC", "3/2s, 20 per day in UTC", "5/4s, 12 per week in Asia/Tokyo, 40 per day in UTC"}
	for kind := range w.limits {
		w.limits[kind] = counter.MustLimits(menus[r.IntN(len(menus))])
	}
	w.room, w.before = 1<<14, 24*time.Hour-time.Duration(r.IntN(3000))*time.Millisecond
}

func (w *simWorld) String() string {
	return fmt.Sprintf("world %d: %+v, %d processes, share %v, limits %v, tickets %v, turns %d, %d callers each, moods %q, room %d", w.seed, w.simPace, w.processes, w.share, w.limits, w.tickets, w.turns, w.callers, w.moods, w.room)
}

const (
	simLasts = 12 * time.Second

	// carried is the time by which all hits are in the store after the last failure: a
	// carry under way may fail after two of the patiences, the next begins three seconds
	// later at most, and the keys of a lane follow each other.
	carried = 15 * time.Second
)

// pending is the number of hits that wait in all processes.
func (w *simWorld) pending() (n int64) {
	for _, p := range w.loads {
		n += p.f.Stats().Pending
	}
	return n
}

// run returns a description of a window that breaks the promise, if any.
func (w *simWorld) run(t *testing.T) (over string) {
	synctest.Test(t, func(t *testing.T) {
		w.store = &simStore{w: w, rng: rand.New(rand.NewPCG(w.seed, 1)), memory: memory.New(memory.Config{})}
		w.store.Store = backend.FromDo(w.store.Do)
		time.Sleep(w.before)
		began := time.Now()
		var all sync.WaitGroup
		for p := range w.processes {
			process := &simProcess{w: w, number: p, began: began, phase: w.rng.Float64(), rng: rand.New(rand.NewPCG(w.seed, uint64(2+p)))}
			w.loads = append(w.loads, process)
			process.start(t)
			for caller := range w.callers {
				rng := rand.New(rand.NewPCG(w.seed, uint64(100+100*p+caller)))
				all.Go(func() { process.call(t, rng) })
			}
		}
		all.Go(func() { w.weather(t) })
		all.Wait()
		w.store.set("well")
		for began := time.Now(); time.Since(began) < carried && w.pending() > 0; {
			time.Sleep(100 * time.Millisecond)
		}
		over = w.check()
		if n := w.pending(); n > 0 {
			over = fmt.Sprintf("%s: %d hits are not carried though the store is back", w, n)
		}
		for _, p := range w.loads {
			w.stop(p.f)
		}
	})
	return over
}

// weather changes what the store does.
func (w *simWorld) weather(t *testing.T) {
	for began := time.Now(); time.Since(began) < simLasts; {
		time.Sleep(time.Duration(w.rng.ExpFloat64() * float64(400*time.Millisecond)))
		w.store.set(w.moods[w.rng.IntN(len(w.moods))])
		if w.rng.IntN(40) == 0 {
			w.mu.Lock()
			w.losses = append(w.losses, time.Now())
			w.Lost++
			w.mu.Unlock()
			w.store.lose()
		}
		if w.rng.IntN(20) == 0 {
			p := w.loads[w.rng.IntN(len(w.loads))]
			before, _, _ := p.life()
			p.start(t)
			w.stop(before)
			w.mu.Lock()
			w.Restarts++
			w.mu.Unlock()
		}
	}
}

// simProcess is a limiter that restarts.
type simProcess struct {
	w      *simWorld
	number int
	began  time.Time
	phase  float64
	rng    *rand.Rand

	mu    sync.Mutex // of the rest, and never held across a call: virtual time would stand still
	lives int
	f     *fallback.Fallback
	rules [2]simRule // of the kinds
}

// simRule is a rule of a process.
type simRule struct {
	*fallback.Rule
	key      counter.Key
	limits   counter.Limits
	on, here *counter.Counter
}

// life returns the Fallback, its rules, and a number for its local counter.
func (p *simProcess) life() (*fallback.Fallback, [2]simRule, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.f, p.rules, 100*p.number + p.lives
}

// now is a clock that wanders, half of the skew to either side.
func (p *simProcess) now() time.Time {
	now := time.Now()
	return now.Add(p.error(now))
}

func (p *simProcess) error(now time.Time) time.Duration {
	angle := 2 * math.Pi * (now.Sub(p.began).Seconds()/5 + p.phase)
	return time.Duration(math.Sin(angle) * float64(p.w.skew) / 2)
}

func (p *simProcess) start(t *testing.T) {
	w := p.w
	var store backend.Store = struct{ backend.Atomic }{w.store}
	if w.tickets {
		store = struct{ backend.Store }{w.store}
	}
	config := counter.Config{Skew: w.skew, Settle: 50 * time.Millisecond, Patience: w.patience, Now: p.now}
	c := try.To(counter.New(store, config))(t)
	config.Skew += w.within
	local := &simLocal{Store: memory.New(memory.Config{MaxBuckets: w.room, Reserve: -1}), w: w}
	here := try.To(counter.New(local, config))(t)
	f := fallback.New(c, fallback.Config{Within: w.within, MaxInFlight: w.turns, Local: here, Share: w.share})
	local.of = f
	p.mu.Lock()
	defer p.mu.Unlock()
	p.f, p.lives = f, p.lives+1
	for i, limits := range w.limits {
		ladder := limits.Ladder()
		rule := simRule{key: simKeys[i], limits: limits}
		rule.on = try.To(c.With(ladder, nil))(t)
		rule.here = try.To(here.With(ladder, nil))(t)
		rule.Rule = f.Ladder(rule.on, rule.here).Rule(limits)
		p.rules[i] = rule
	}
}

// simKeys are the keys of the kinds.
var simKeys = [2]counter.Key{{Event: "signup", Feature: "ip:192.0.2.1"}, {Event: "signup", Feature: "user:ada"}}

// stop ends a life. Close tells the hits that die with it.
func (w *simWorld) stop(f *fallback.Fallback) {
	_ = f.Close(over)
	s := f.Stats()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Local, w.Carried, w.Dropped, w.Shed = w.Local+s.Admitted, w.Carried+s.Carried, w.Dropped+s.Dropped, w.Shed+s.Shed
}

// call decides again and again.
func (p *simProcess) call(t *testing.T, rng *rand.Rand) {
	w := p.w
	for time.Since(p.began) < simLasts {
		time.Sleep(time.Duration(rng.ExpFloat64() * float64(40*time.Millisecond)))
		if rng.IntN(30) == 0 {
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		}
		f, rules, life := p.life()
		call := &fallback.Call{Policy: fallback.Local}
		var asks []counter.Ask
		add := func(r simRule) {
			call.Rules = append(call.Rules, r.Rule)
			n := int64(1)
			switch rng.IntN(10) {
			case 0:
				n = 0 // the key is judged alone
			case 1, 2:
				n = 2
			}
			asks = append(asks, counter.Ask{Key: r.key, N: n, Limits: r.limits, On: r.on})
		}
		if rng.IntN(3) > 0 {
			add(rules[0])
		}
		if len(asks) == 0 || rng.IntN(2) == 0 {
			add(rules[1])
		}
		if !f.Begin() {
			continue
		}
		var v counter.Verdict
		origin, known := f.Recall(call, asks, &v)
		if !known {
			origin = try.To(f.Take(t.Context(), call, asks, &v))(t)
		}
		f.End()
		if label := v.At(); !label.IsZero() {
			h := simHit{counter: life, label: label, local: origin.Local}
			// The error of the clock changes slowly: the label is undone by its
			// neighbour's.
			h.true = label.Add(-p.error(label))
			for range 8 {
				h.true = label.Add(-p.error(h.true))
			}
			if rng.IntN(15) == 0 {
				h.refunded = true
				_ = f.Refund(t.Context(), &v, origin) // the store may fail
			}
			w.mu.Lock()
			w.Hits++
			if h.refunded {
				w.Refunded++
			}
			for i := 0; i < len(asks) && !h.refunded; i++ {
				h.key, h.n = asks[i].Key, asks[i].N
				w.log = append(w.log, h)
			}
			w.mu.Unlock()
		}
	}
}

// check looks at every window, by the labels and by their true instants.
func (w *simWorld) check() string {
	for kind, key := range simKeys {
		for name, instant := range map[string]func(h simHit) time.Time{
			"labels": func(h simHit) time.Time { return h.label }, "true time": func(h simHit) time.Time { return h.true },
		} {
			var hits []simHit
			for _, h := range w.log {
				if h.key == key && h.n > 0 {
					hits = append(hits, h)
				}
			}
			slices.SortStableFunc(hits, func(a, b simHit) int { return instant(a).Compare(instant(b)) })
			for _, limit := range w.limits[kind] {
				if !limit.Period.IsZero() && name == "true time" {
					continue // a hit belongs to the period of its label
				}
				share := int64(math.Ceil(w.share*float64(limit.Max) - 1e-9))
				for i := range hits {
					var sum int64
					counters := map[int]bool{}
					for _, h := range hits[i:] {
						if !together(limit, instant(hits[i]), instant(h)) {
							break
						}
						sum += h.n
						counters[h.counter] = true
						lost := int64(0)
						for _, at := range w.losses {
							if at.After(instant(hits[i]).Add(-w.skew)) && at.Before(instant(h).Add(w.skew+w.patience)) {
								lost++
							}
						}
						if sum > limit.Max {
							w.Beyond++
						}
						if most := limit.Max + int64(len(counters)-1)*share + lost*limit.Max; sum > most {
							over := fmt.Sprintf("%s: %s under %s by %s: %d hits, want at most %d (%d local counters, %d losses)", w, key.Feature, limit, name, sum, most, len(counters), lost)
							for _, h := range hits[i:] {
								if together(limit, instant(hits[i]), instant(h)) {
									over += fmt.Sprintf("\n%s %d by %d, locally: %v", instant(h).Format("05.000000"), h.n, h.counter, h.local)
								}
							}
							return over
						}
					}
				}
			}
		}
	}
	return ""
}

// together reports whether a window of limit holds a hit and a later one.
func together(limit counter.Limit, hit, later time.Time) bool {
	if limit.Period.IsZero() {
		return later.Sub(hit) <= limit.Per
	}
	_, end := limit.Period.Span(hit.UnixNano())
	return later.UnixNano() < end
}

// simStore is a store over a network that fails.
type simStore struct {
	backend.Store // of Do alone

	w      *simWorld
	mu     sync.Mutex
	rng    *rand.Rand
	memory *memory.Store
	mode   string
}

var errSim = errors.New("sim: the connection was lost")

func (s *simStore) set(mode string) {
	s.mu.Lock()
	back := s.mode != mode && mode == "well"
	s.mode = mode
	s.mu.Unlock()
	if back && s.w.mistake == "emptied when the store is back" {
		s.empty()
	}
}

// empty empties the local counters.
func (s *simStore) empty() {
	for _, p := range s.w.loads {
		_, rules, _ := p.life()
		for _, rule := range rules {
			_ = rule.here.Forget(context.Background(), rule.key)
		}
	}
}

func (s *simStore) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = memory.New(memory.Config{})
}

// serve executes a call as the mode says.
func (s *simStore) serve(ctx context.Context, deadline time.Time, execute func(m *memory.Store) error) error {
	s.mu.Lock()
	mode := s.mode
	if mode == "mixed" {
		mode = []string{"well", "refuses", "loses answers", "late", "executes late", "slow"}[s.rng.IntN(6)]
	}
	quick := func() time.Duration { return time.Duration(s.rng.IntN(4000)) * time.Microsecond }
	before, after := quick(), quick()
	slow, about := time.Duration(s.rng.IntN(2*int(s.w.patience)))+s.w.within/2, time.Duration(s.rng.IntN(2*int(s.w.within)))
	s.mu.Unlock()
	switch mode {
	case "refuses":
		time.Sleep(before)
		return errSim
	case "late":
		after = slow
	case "slow": // some answers are in time
		after = about
	case "executes late":
		before = slow
	}
	time.Sleep(before)
	s.mu.Lock()
	m := s.memory
	s.mu.Unlock()
	if mode == "executes late" && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	if err := execute(m); err != nil {
		return err
	}
	time.Sleep(after)
	if mode == "loses answers" || !time.Now().Before(deadline) {
		return errSim
	}
	return nil
}

func (s *simStore) Take(ctx context.Context, r *backend.TakeRequest) error {
	if s.w.mistake == "pending hits are not held" {
		for i := range r.Keys {
			for j, limit := range s.w.limits[s.w.kindOf(r.Keys[i].Key)] {
				r.Keys[i].Windows[j].Max = limit.Max
			}
		}
	}
	return s.serve(ctx, r.Deadline, func(m *memory.Store) error { return m.Take(ctx, r) })
}

func (s *simStore) Together([]backend.TakeKey) bool { return true }

func (s *simStore) Do(ctx context.Context, r *backend.Request) error {
	carried := len(r.Add) > 0 && r.N > 0 && !s.w.tickets
	if carried && s.w.mistake == "a carry is sent and not counted" {
		return nil
	}
	err := s.serve(ctx, r.Deadline, func(m *memory.Store) error {
		if r.N < 0 && s.lostSince(r.Add[0].Start()) {
			return nil // would take hits of other calls: see docs/guarantees.md, of a taking back in flight
		}
		return m.Do(ctx, r)
	})
	if err == nil && carried && s.w.mistake == "carried hits leave" {
		s.empty()
	}
	return err
}

// lostSince reports whether the buckets were lost after an instant.
func (s *simStore) lostSince(at time.Time) bool {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return slices.ContainsFunc(s.w.losses, func(loss time.Time) bool { return loss.After(at.Add(-s.w.skew)) })
}

// kindOf is the index of the kind of a stored key.
func (w *simWorld) kindOf(key []byte) int {
	if bytes.Contains(key, []byte("user:")) {
		return 1
	}
	return 0
}

// simLocal is the store of a local counter, with mistakes.
type simLocal struct {
	*memory.Store
	w  *simWorld
	of *fallback.Fallback
}

func (s *simLocal) Take(ctx context.Context, r *backend.TakeRequest) error {
	switch s.w.mistake {
	case "no mirror":
		if r.Keys[0].Windows[0].Max == counter.MaxCount {
			r.Allowed = true
			return nil
		}
	case "no reach beyond Per":
		s.reach(r, -s.w.skew-s.w.within)
	case "no reach for late answers":
		s.reach(r, -s.w.within)
	}
	err := s.Store.Take(ctx, r)
	if s.w.mistake == "superseded answers are believed" && err == nil && r.Allowed && r.Keys[0].Windows[0].Max != counter.MaxCount {
		for i := range r.Keys {
			fallback.Unmark(s.of, simKeys[s.w.kindOf(r.Keys[i].Key)])
		}
	}
	if s.w.mistake == "hits without room are not noted" && errors.Is(err, memory.ErrFull) && r.Keys[0].Windows[0].Max == counter.MaxCount {
		r.Allowed, err = true, nil
	}
	return err
}

func (s *simLocal) reach(r *backend.TakeRequest, by time.Duration) {
	for i := range r.Keys {
		for j := range r.Keys[i].Windows {
			r.Keys[i].Windows[j].Reach += by
		}
	}
}
