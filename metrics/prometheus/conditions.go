package prometheus

import (
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	"github.com/prometheus/client_golang/prometheus"
)

// Conditions returns a collector of limiter.Stats and of the counter.Stats of the
// limiter's Counter: the conditions of the promises, and counts of rare events. To
// collect asks no server: the clocks, evictions and restarts are those that the
// last Check of the limiter has found, so a program should call Check once a
// minute.
func Conditions(lim *limiter.Limiter) prometheus.Collector {
	return &conditions{lim}
}

type conditions struct{ lim *limiter.Limiter }

// now are the numbers of one moment.
type now struct {
	limiter limiter.Stats
	counter counter.Stats
	skew    time.Duration
}

// condition is a metric of conditions.
type condition struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*now) float64
}

func gauge(name, help string, value func(*now) float64) condition {
	return condition{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value}
}

func total(name, help string, value func(*now) int64) condition {
	return condition{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, func(n *now) float64 { return float64(value(n)) }}
}

// seconds is the Unix time of t, 0 of the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}

var all = []condition{
	gauge("abacus_check_timestamp_seconds", "Unix time of the last Check that a server has answered; 0 before the first.", func(n *now) float64 { return seconds(n.counter.Checked) }),
	gauge("abacus_clock_ahead_seconds", "Lead of the store's clock over the clock of this process, by the last Check; below 0 if behind.", func(n *now) float64 { return n.counter.ClockAhead.Seconds() }),
	gauge("abacus_clock_within_seconds", "Uncertainty of abacus_clock_ahead_seconds.", func(n *now) float64 { return n.counter.ClockWithin.Seconds() }),
	gauge("abacus_clock_skew_seconds", "Skew of the counter, by which the clocks of two callers may be apart.", func(n *now) float64 { return n.skew.Seconds() }),
	total("abacus_evictions_total", "Keys or items that the servers have evicted, by the last Check: limits forgiven.", func(n *now) int64 { return n.counter.Evictions }),
	total("abacus_restarts_total", "Servers that were found restarted or replaced, by the last Check: limits forgiven, unless the data was on disk.", func(n *now) int64 { return n.counter.Restarts }),
	total("abacus_buckets_ahead_total", "Answers with a hit that a caller with a clock ahead by more than Skew has counted.", func(n *now) int64 { return n.counter.BucketsAhead }),
	total("abacus_late_answers_total", "Answers that hits were counted, after the call had failed; the hits were taken back.", func(n *now) int64 { return n.counter.LateAnswers }),
	total("abacus_hits_left_total", "Additions of failed calls that may stay, and deny other calls, until they age out.", func(n *now) int64 { return n.counter.HitsLeft }),
	total("abacus_taking_back_failed_total", "Takings back without a confirmation of the store.", func(n *now) int64 { return n.counter.TakingBackFailed }),
	total("abacus_guesses_total", "Takes that went by something remembered.", func(n *now) int64 { return n.counter.Guesses }),
	total("abacus_wrong_guesses_total", "Guesses that the answer of the store did not bear out.", func(n *now) int64 { return n.counter.WrongGuesses }),
	total("abacus_key_waits_total", "Calls that waited for other calls of the same key in this process.", func(n *now) int64 { return n.counter.Waited }),
	total("abacus_late_tries_total", "Tries by ticket that took longer than Settle, and were taken back.", func(n *now) int64 { return n.counter.LateTries }),
	total("abacus_looks_again_total", "Looks after a refusal by calls that were about to be refused themselves.", func(n *now) int64 { return n.counter.LooksAgain }),
	total("abacus_stale_labels_total", "Calls that got a new label, since the store had dropped buckets of their window.", func(n *now) int64 { return n.counter.StaleLabels }),

	total("abacus_local_admitted_total", "Decisions that the local counter admitted while the store did not decide.", func(n *now) int64 { return n.limiter.LocalAdmitted }),
	total("abacus_local_denied_total", "Decisions denied by the local counter, or by a denial of the store from before it failed.", func(n *now) int64 { return n.limiter.LocalDenied }),
	total("abacus_local_refused_total", "Decisions that the local counter could not make, for lack of hits or of room, and denied.", func(n *now) int64 { return n.limiter.LocalRefused }),
	total("abacus_unmirrored_hits_total", "Hits of a key that the store admitted, and that found no room in the local counter.", func(n *now) int64 { return n.limiter.Unmirrored }),
	gauge("abacus_local_lacking_ratio", "Share of the keys unknown to the local counter that it cannot decide, since it lacks hits.", func(n *now) float64 { return n.limiter.Lacking }),
	gauge("abacus_pending_additions_ratio", "Additions that carry the pending hits, as a share of their bound for new keys; additions of known keys may raise it above 1.", func(n *now) float64 { return float64(n.limiter.Additions) / limiter.MaxAdditions }),
	gauge("abacus_pending_hits", "Hits that were admitted locally, and wait to be carried to the store.", func(n *now) float64 { return float64(n.limiter.Pending) }),
	total("abacus_carried_hits_total", "Hits that were admitted locally, and carried to the store.", func(n *now) int64 { return n.limiter.Carried }),
	total("abacus_dropped_hits_total", "Hits that were admitted locally, and came too late for the buckets of the store.", func(n *now) int64 { return n.limiter.Dropped }),
	total("abacus_turn_waits_total", "Calls that waited for a turn under MaxInFlight, and got one.", func(n *now) int64 { return n.limiter.Waited }),
	total("abacus_shed_calls_total", "Calls that got no turn under MaxInFlight, and were decided as if the store had failed.", func(n *now) int64 { return n.limiter.Shed }),
	gauge("abacus_waiting_calls", "Calls of Wait that wait in a queue.", func(n *now) float64 { return float64(n.limiter.Waiting) }),

	gauge("abacus_rules_last_reload_successful", "1 if the last read of the file of the rules found the rules in force or replaced them, or if no file is watched; 0 if the file was refused.", func(n *now) float64 {
		if n.limiter.RulesRefused != "" {
			return 0
		}
		return 1
	}),
	gauge("abacus_rules_last_reload_success_timestamp_seconds", "Unix time of the last successful read of the file of the rules; 0 if no file is watched.", func(n *now) float64 { return seconds(n.limiter.RulesRead) }),
}

func (c *conditions) Describe(ch chan<- *prometheus.Desc) {
	for i := range all {
		ch <- all[i].desc
	}
}

func (c *conditions) Collect(ch chan<- prometheus.Metric) {
	n := now{c.lim.Stats(), c.lim.Counter().Stats(), c.lim.Counter().Config().Skew}
	for i := range all {
		ch <- prometheus.MustNewConstMetric(all[i].desc, all[i].kind, all[i].value(&n))
	}
}
