package prometheus

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/abacus-go/abacus/limiter"
	"github.com/prometheus/client_golang/prometheus"
)

// Decisions counts the decisions of a limiter: abacus_decisions_total by event,
// kind and outcome, abacus_soft_decisions_total by event, kind and answer of the soft
// rules, and abacus_decision_duration_seconds by event. [NewDecisions] makes
// Decisions. The method Observe is for limiter.Config.Observe; a Decisions
// is a prometheus.Collector. Many goroutines may use Decisions at once.
type Decisions struct {
	total    *prometheus.CounterVec
	soft     *prometheus.CounterVec
	duration *prometheus.HistogramVec

	bound atomic.Pointer[map[rule]*series] // never changed, but replaced
	mu    sync.Mutex                       // of replacing
}

var _ prometheus.Collector = (*Decisions)(nil)

// rule is the event and the kind of decisions.
type rule struct{ event, kind string }

// series are the series of the decisions of a rule. Labels are looked up once for
// each rule, since a lookup takes as long as the half of a decision in memory.
type series struct {
	total    []prometheus.Counter  // by outcome
	soft     [2]prometheus.Counter // would admit, would deny; nil: no soft rule has decided
	duration prometheus.Observer
}

// durations are the upper bounds of the buckets of the histogram, in seconds: a
// decision takes microseconds in memory, a fraction of a millisecond on a store
// nearby, and a second at most by default if the store does not answer.
var durations = []float64{2e-6, 5e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5}

// NewDecisions returns Decisions of one limiter.
func NewDecisions() *Decisions {
	d := &Decisions{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "abacus_decisions_total",
			Help: "Decisions of the limiter, by event, kind of the limit that binds (empty if none was asked) and outcome.",
		}, []string{"event", "kind", "outcome"}),
		soft: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "abacus_soft_decisions_total",
			Help: "Answers of soft rules to admitted calls, by event, kind and whether the rule would have denied the call.",
		}, []string{"event", "kind", "would_deny"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "abacus_decision_duration_seconds",
			Help:    "Time of a decision, without the time that a call of Wait has waited for its turn.",
			Buckets: durations,
		}, []string{"event"}),
	}
	d.bound.Store(&map[rule]*series{})
	return d
}

// Observe counts a decision.
func (d *Decisions) Observe(decision limiter.Decision) {
	if decision.Outcome == limiter.OutcomeForgotten {
		return // is no decision
	}
	s := d.of(rule{decision.Event, decision.Kind}, false)
	s.total[decision.Outcome].Inc()
	s.duration.Observe(decision.Latency.Seconds())
	for i := range decision.Soft {
		would := 0
		if decision.Soft[i].Denied {
			would = 1
		}
		d.of(rule{decision.Event, decision.Soft[i].Kind}, true).soft[would].Inc()
	}
}

// of returns the series of a rule. With the first decision of a rule there are
// series of all outcomes, of zero, so that the first increase of each is seen;
// those without a kind too, where the failures of the store are counted.
// soft asks for the series of the soft rule as well.
func (d *Decisions) of(r rule, soft bool) *series {
	if s := (*d.bound.Load())[r]; s != nil && (!soft || s.soft[0] != nil) {
		return s
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all := maps.Clone(*d.bound.Load())
	r = rule{strings.Clone(r.event), strings.Clone(r.kind)} // may be parts of longer texts
	for _, r := range []rule{r, {event: r.event}} {
		if all[r] == nil {
			all[r] = d.bind(r)
		}
	}
	if soft && all[r].soft[0] == nil {
		s := *all[r]
		event, kind := label(r.event), label(r.kind)
		s.soft = [2]prometheus.Counter{d.soft.WithLabelValues(event, kind, "false"), d.soft.WithLabelValues(event, kind, "true")}
		all[r] = &s
	}
	d.bound.Store(&all)
	return all[r]
}

func (d *Decisions) bind(r rule) *series {
	event, kind := label(r.event), label(r.kind)
	s := &series{duration: d.duration.WithLabelValues(event)}
	for o := range limiter.OutcomeForgotten { // all outcomes of decisions
		s.total = append(s.total, d.total.WithLabelValues(event, kind, o.String()))
	}
	return s
}

// label returns a name for a label, which must be UTF-8.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// Describe is a method of prometheus.Collector.
func (d *Decisions) Describe(ch chan<- *prometheus.Desc) {
	d.total.Describe(ch)
	d.soft.Describe(ch)
	d.duration.Describe(ch)
}

// Collect is a method of prometheus.Collector.
func (d *Decisions) Collect(ch chan<- prometheus.Metric) {
	d.total.Collect(ch)
	d.soft.Collect(ch)
	d.duration.Collect(ch)
}
