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

// fields writes verdicts as header fields: RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-10, structured fields of RFC 9651.
// RateLimit-Policy lists the rules, which are no secret and the same for all
// clients; RateLimit lists the remaining counts of the kinds in Config.Show.
// Immutable.
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

// Names of the fields, in the spelling of net/http.
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
		// Appended: an outer middleware may have fields of its own.
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

// setRetryAfter sets Retry-After to the wait of v, if waiting helps: whole
// seconds, rounded up, at least 1.
func setRetryAfter(h http.Header, v *limiter.Verdict) {
	if v.RetryAfter > 0 && v.RetryAfter != counter.Never {
		h.Set("Retry-After", strconv.FormatInt(seconds(v.RetryAfter), 10))
	}
}

// balance is a policy with its remaining count.
type balance struct {
	policy    *policy
	remaining int64
	until     time.Duration // till more is left
}

// compare sorts by the remaining count, and equal counts by the longer wait
// first.
func (b balance) compare(other balance) int {
	return cmp.Or(cmp.Compare(b.remaining, other.remaining), cmp.Compare(other.until, b.until))
}

// shown lists the policies of v that are shown, each once: among several
// features of a kind the feature with the least remaining count.
func (f *fields) shown(v *limiter.Verdict) []balance {
	if v.RetryAfter == counter.Never {
		return nil // the cost is above a limit: the store was not asked
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

// find is the policy of a state.
func (f *fields) find(s *counter.State) *policy {
	kind := limiter.KindOf(s.Key)
	for i := range f.policies {
		if p := &f.policies[i]; p.limit == s.Limit && p.kind == kind {
			return p
		}
	}
	return nil
}

// rateLimit is the field RateLimit; empty if no policy is shown. The numbers of
// a structured field need no library, and the strings were written once, in
// newFields: half of the middleware's time went into httpsfv when the library wrote
// the whole field.
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

// seconds rounds up: a client that comes back a moment early is denied.
func seconds(d time.Duration) int64 { return ceil(int64(d)) }

func ceil(ns int64) int64 { return (ns + int64(time.Second) - 1) / int64(time.Second) }
