package envoy

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// numbers are the hits of descriptors, under the names of the reference service.
type numbers struct {
	total, over, near, within, shadow *prometheus.CounterVec

	mu   sync.Mutex
	seen map[[3]string]bool // labels with values of requests
}

// Bounds of the labels with values of requests. What is beyond them counts without values.
const maxSeries, maxLabel = 1_000, 200

func newNumbers(to prometheus.Registerer) (*numbers, error) {
	var errs []error
	add := func(name, help string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimit_service_rate_limit_" + name, Help: help,
		}, []string{"domain", "key1", "key2"})
		errs = append(errs, to.Register(vec))
		return vec
	}
	m := &numbers{
		total: add("total_hits", "Hits of descriptors with a rule."), over: add("over_limit", "Hits over the limit."),
		near: add("near_limit", "Hits within the limit, in its last fifth."), within: add("within_limit", "Hits within the limit."),
		shadow: add("shadow_mode", "Hits over the limit of a rule in shadow_mode."), seen: map[[3]string]bool{},
	}
	return m, errors.Join(errs...)
}

// count counts the hits of an answer, by the rules of its domain.
func (m *numbers) count(a *answer, root *node) {
	for i := range a.targets {
		t := &a.targets[i]
		if !t.counted() || t.IsNegativeHits || t.first != i {
			continue
		}
		labels := m.labels(a.Domain, root, t)
		add := func(vec *prometheus.CounterVec, n int64) {
			if n > 0 {
				vec.WithLabelValues(labels[:]...).Add(float64(n))
			}
		}
		add(m.total, t.n)
		switch s := t.state; {
		case s == nil: // the store has failed
		case s.RetryAfter == 0:
			add(m.within, t.n)
			add(m.near, min(t.n, s.Limit.Max-s.Remaining-s.Limit.Max*4/5))
		default:
			add(m.over, t.n)
			if t.rule.shadow {
				add(m.shadow, t.n)
			}
		}
	}
}

// labels returns the domain and the names of the first two entries of a target, as the
// reference has them.
func (m *numbers) labels(domain string, n *node, t *target) [3]string {
	plain := [3]string{domain}
	full, long := plain, false
	for i, e := range t.Entries {
		if n = n.next(e.Key, e.Value); n == nil {
			return [3]string{domain, wildcard} // by a limit that the request brings alone
		}
		if i > 1 {
			continue
		}
		value := n.value
		plain[i+1] = nameOf(e.Key, value)
		if n.pattern == "" && (t.rule.detailed || n.metric) {
			value = e.Value
		}
		full[i+1] = nameOf(e.Key, value)
		long = long || len(value) > maxLabel
	}
	if full == plain {
		return plain
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.seen[full] {
		if long || len(m.seen) >= maxSeries {
			return plain
		}
		m.seen[full] = true
	}
	return full
}

// nameOf is the name of an entry for people, as the reference writes it.
func nameOf(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}
