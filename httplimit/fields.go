package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// fields says verdicts in header fields: RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-10, structured fields of RFC 9651.
// RateLimit-Policy is the rules, which are no secret, and the same for all;
// RateLimit is what is left of them, for the kinds that are shown. It is
// immutable.
type fields struct {
	policies []policy
	policy   string // the field RateLimit-Policy
}

// policy is a limit of a rule under its public name.
type policy struct {
	kind  string
	limit counter.Limit
	name  string
	item  string // name as a string of a structured field
	shown bool
}

// The fields' names as net/http keeps them.
var (
	policyKey = http.CanonicalHeaderKey("RateLimit-Policy")
	limitKey  = http.CanonicalHeaderKey("RateLimit")
)

// maxInteger is the largest number of a structured field: RFC 9651, section
// 3.3.1.
const maxInteger = 999_999_999_999_999

func newFields(rules []limiter.Rule, show []string) (fields, error) {
	var f fields
	seen := map[string]int{}
	for _, r := range rules {
		for _, limit := range r.Limits {
			seen[limit.String()]++
			f.policies = append(f.policies, policy{kind: r.Kind, limit: limit, name: limit.String(), shown: slices.Contains(show, r.Kind)})
		}
	}
	var list httpsfv.List
	for i := range f.policies {
		p := &f.policies[i]
		if seen[p.name] > 1 { // two kinds have the same limit
			p.name = p.kind + ":" + p.name
		}
		item := httpsfv.NewItem(p.name)
		var err error
		if p.item, err = httpsfv.Marshal(item); err != nil {
			return fields{}, fmt.Errorf("RateLimit-Policy: %w", err)
		}
		item.Params.Add("q", min(p.limit.Max, maxInteger))
		if p.limit.Per%time.Second == 0 { // "w" counts whole seconds
			item.Params.Add("w", int64(p.limit.Per/time.Second))
		}
		list = append(list, item)
	}
	var err error
	if f.policy, err = httpsfv.Marshal(list); err != nil {
		return fields{}, fmt.Errorf("RateLimit-Policy: %w", err)
	}
	return f, nil
}

// setFields says v in the fields of an answer.
func (m *middleware) setFields(h http.Header, v *limiter.Verdict) {
	setRetryAfter(h, v)
	if m.NoHeaders && !m.LegacyHeaders {
		return
	}
	shown := m.fields.shown(v)
	if !m.NoHeaders {
		// Added: a middleware around this one may have set its own.
		h[policyKey] = append(h[policyKey], m.fields.policy)
		if s := rateLimit(shown); s != "" {
			h[limitKey] = append(h[limitKey], s)
		}
	}
	if m.LegacyHeaders && len(shown) > 0 {
		least := slices.MinFunc(shown, balance.compare)
		h.Set("X-RateLimit-Limit", strconv.FormatInt(least.policy.limit.Max, 10))
		h.Set("X-RateLimit-Remaining", strconv.FormatInt(least.remaining, 10))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(ceil(time.Now().Add(least.until).UnixNano()), 10))
	}
}

// setRetryAfter says in Retry-After when to come back, if v tells and waiting
// helps. It is whole seconds, rounded up: one at least.
func setRetryAfter(h http.Header, v *limiter.Verdict) {
	if v.RetryAfter > 0 && v.RetryAfter != counter.Never {
		h.Set("Retry-After", strconv.FormatInt(seconds(v.RetryAfter), 10))
	}
}

// balance is what is left of a policy.
type balance struct {
	policy    *policy
	remaining int64
	until     time.Duration // till more is left
}

// compare has the one that has less left first; of equals the one that takes
// longer.
func (b balance) compare(other balance) int {
	return cmp.Or(cmp.Compare(b.remaining, other.remaining), cmp.Compare(other.until, b.until))
}

// shown is what v says of the policies that are shown, each once: a kind that
// the request has several features of is told by the one that has the least
// left.
func (f *fields) shown(v *limiter.Verdict) []balance {
	if v.RetryAfter == counter.Never {
		return nil // it costs more than a limit: nobody has looked what is left
	}
	shown := make([]balance, 0, len(f.policies))
	for _, s := range v.All() {
		p := f.find(&s)
		if p == nil || !p.shown {
			continue
		}
		b := balance{p, s.Remaining, s.ResetAfter}
		if s.RetryAfter > 0 {
			b.until = s.RetryAfter // the draft wants the instant of Retry-After
		}
		if i := slices.IndexFunc(shown, func(b balance) bool { return b.policy == p }); i < 0 {
			shown = append(shown, b)
		} else if b.compare(shown[i]) < 0 {
			shown[i] = b
		}
	}
	return shown
}

// find is the policy that a state is of.
func (f *fields) find(s *counter.State) *policy {
	kind := limiter.KindOf(s.Key)
	for i := range f.policies {
		if p := &f.policies[i]; p.limit == s.Limit && p.kind == kind {
			return p
		}
	}
	return nil
}

// rateLimit is the field RateLimit; empty if there is nothing to say. Of a
// structured field only the strings need a library: the names were written by
// one, once. Having it write all of this took half of the middleware's time.
func rateLimit(shown []balance) string {
	var buf [128]byte
	field := buf[:0]
	for i, b := range shown {
		if i > 0 {
			field = append(field, ", "...)
		}
		field = append(append(field, b.policy.item...), ";r="...)
		field = strconv.AppendInt(field, min(b.remaining, maxInteger), 10)
		field = strconv.AppendInt(append(field, ";t="...), seconds(b.until), 10)
	}
	return string(field)
}

// seconds are whole ones, rounded up: who comes back a moment early is refused.
func seconds(d time.Duration) int64 { return ceil(int64(d)) }

func ceil(ns int64) int64 { return (ns + int64(time.Second) - 1) / int64(time.Second) }
