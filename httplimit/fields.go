package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// fields writes verdicts as header fields: RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-11, structured fields of RFC 9651.
// RateLimit-Policy lists the limits of the call, which are no secret and the same
// for all clients, unless a rule has limits by call; RateLimit lists the remaining
// counts of the kinds in Config.Show. Immutable.
type fields struct {
	policies []policy
	policy   string // the field RateLimit-Policy
}

// lines writes header fields of one answer, whose values share an allocation. The
// names are in the spelling of net/http, so nothing looks for another spelling.
type lines struct {
	header http.Header
	values []string // of all fields; a field has a part without room behind it
}

// set is http.Header.Set.
func (l *lines) set(name, value string) {
	if l.values == nil {
		l.values = make([]string, 0, 2)
	}
	l.values = append(l.values, value)
	n := len(l.values)
	l.header[name] = l.values[n-1 : n : n]
}

// add is http.Header.Add.
func (l *lines) add(name, value string) {
	if before := l.header[name]; len(before) > 0 {
		l.header[name] = append(before, value)
		return
	}
	l.set(name, value)
}

// policy is a limit of a rule under its public name.
type policy struct {
	kind   string
	prefix string // of the key of a feature of the kind
	limit  counter.Limit
	name   string
	item   string // name as a string of a structured field, and the key of its first parameter in RateLimit
	shown  bool
	denial string // the body of a denial by this policy alone
	ban    string // the same of a ban
}

// Names of the fields, in the spelling of net/http.
var (
	policyKey     = http.CanonicalHeaderKey("RateLimit-Policy")
	limitKey      = http.CanonicalHeaderKey("RateLimit")
	retryAfterKey = http.CanonicalHeaderKey("Retry-After")
)

// maxInteger is the largest number of a structured field: RFC 9651, section
// 3.3.1.
const maxInteger = 999_999_999_999_999

// newFields makes the fields of policies, of which kind and limit are set.
func newFields(policies []policy, show []string) (*fields, error) {
	f := &fields{policies: policies}
	seen := map[string]int{}
	for i := range f.policies {
		p := &f.policies[i]
		p.prefix, p.name, p.shown = p.kind+":", p.limit.String(), slices.Contains(show, p.kind)
		seen[p.name]++
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
			return nil, fmt.Errorf("RateLimit-Policy: %w", err)
		}
		p.item += ";r="
		item.Params.Add("q", min(p.limit.Max, maxInteger))
		if p.limit.Per%time.Second == 0 { // "w" counts whole seconds
			item.Params.Add("w", int64(p.limit.Per/time.Second))
		}
		list = append(list, item)
	}
	var err error
	if f.policy, err = httpsfv.Marshal(list); err != nil {
		return nil, fmt.Errorf("RateLimit-Policy: %w", err)
	}
	return f, nil
}

// fieldsByCall remembers the fields of calls with limits of their own.
type fieldsByCall struct {
	mu    sync.RWMutex
	known []*fields
}

// maxFieldsByCall bounds the fields that are remembered. Beyond, fields are made
// for each call.
const maxFieldsByCall = 64

// fieldsOf are the fields for a verdict with these states.
func (m *middleware) fieldsOf(states []counter.State) *fields {
	ruled := m.rulesNow()
	if ruled.byCall == nil || len(states) == 0 {
		return ruled.fields
	}
	byCall := ruled.byCall
	byCall.mu.RLock()
	i := slices.IndexFunc(byCall.known, func(f *fields) bool { return f.are(states) })
	if i >= 0 {
		defer byCall.mu.RUnlock()
		return byCall.known[i]
	}
	byCall.mu.RUnlock()
	var policies []policy
	for _, s := range states {
		p := policy{kind: feature.KindOf(s.Key.Feature), limit: s.Limit}
		if !slices.ContainsFunc(policies, func(q policy) bool { return q.kind == p.kind && q.limit == p.limit }) {
			policies = append(policies, p)
		}
	}
	f, err := m.newFields(policies, ruled.show)
	if err != nil { // the names of kinds were checked by New
		return ruled.fields
	}
	byCall.mu.Lock()
	defer byCall.mu.Unlock()
	if len(byCall.known) < maxFieldsByCall {
		byCall.known = append(byCall.known, f)
	}
	return f
}

// are reports whether the policies are those of states.
func (f *fields) are(states []counter.State) bool {
	for i := range states {
		if f.find(states[i].Limit, states[i].Key.Feature) == nil {
			return false
		}
	}
	for i := range f.policies {
		p := &f.policies[i]
		if !slices.ContainsFunc(states, func(s counter.State) bool { return s.Limit == p.limit && strings.HasPrefix(s.Key.Feature, p.prefix) }) {
			return false
		}
	}
	return true
}

// setFields says v in the fields of an answer. states are the states of v, or nil for
// v.All().
func (m *middleware) setFields(l *lines, v *limiter.Verdict, states []counter.State) {
	var room [4]balance
	ruled := m.rulesNow()
	shown, fields := room[:0], ruled.fields
	if ruled.byCall != nil && (!m.NoHeaders || m.LegacyHeaders) {
		if states == nil {
			states = v.All()
		}
		fields = m.fieldsOf(states)
	}
	switch {
	case m.NoHeaders && !m.LegacyHeaders:
	case v.RetryAfter == counter.Never: // the cost is above a limit: the store was not asked
	case ruled.single && v.Allowed && states == nil:
		// The only state, if there is one, is in the flat fields.
		if p := fields.find(v.Limit, v.Key.Feature); p != nil && p.shown {
			shown = append(shown, balance{p, v.Remaining, v.ResetAfter})
		}
	default:
		if states == nil {
			states = v.All()
		}
		for i := range states {
			shown = fields.show(shown, &states[i])
		}
	}
	var buf [192]byte
	text := appendRetryAfter(buf[:0], v)
	wait := len(text)
	if !m.NoHeaders {
		text = appendRateLimit(text, shown)
	}
	all := string(text) // of both fields
	if wait > 0 {
		l.set(retryAfterKey, all[:wait])
	}
	if !m.NoHeaders {
		// Added: an outer middleware may have fields of its own.
		l.add(policyKey, fields.policy)
		if wait < len(all) {
			l.add(limitKey, all[wait:])
		}
	}
	if m.LegacyHeaders && len(shown) > 0 {
		least := slices.MinFunc(shown, balance.compare)
		l.header.Set("X-RateLimit-Limit", strconv.FormatInt(least.policy.limit.Max, 10))
		l.header.Set("X-RateLimit-Remaining", strconv.FormatInt(least.remaining, 10))
		l.header.Set("X-RateLimit-Reset", strconv.FormatInt(ceil(time.Now().Add(least.until).UnixNano()), 10))
	}
}

// setRetryAfter sets Retry-After alone.
func setRetryAfter(h http.Header, v *limiter.Verdict) {
	if text := appendRetryAfter(nil, v); text != nil {
		h.Set(retryAfterKey, string(text))
	}
}

// appendRetryAfter appends the wait of v, if waiting helps: whole seconds,
// rounded up, at least 1.
func appendRetryAfter(dst []byte, v *limiter.Verdict) []byte {
	if v.RetryAfter > 0 && v.RetryAfter != counter.Never {
		dst = strconv.AppendInt(dst, seconds(v.RetryAfter), 10)
	}
	return dst
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

// show adds the policy of a state to shown, if the policy is shown: once, among
// several features of a kind the feature with the least remaining count.
func (f *fields) show(shown []balance, s *counter.State) []balance {
	p := f.find(s.Limit, s.Key.Feature)
	if p == nil || !p.shown {
		return shown
	}
	b := balance{p, s.Remaining, s.ResetAfter}
	if s.RetryAfter > 0 && s.RetryAfter != counter.Never {
		b.until = s.RetryAfter // Retry-After should not end before: the draft, section 6
	}
	for i := range shown {
		if shown[i].policy == p {
			if b.compare(shown[i]) < 0 {
				shown[i] = b
			}
			return shown
		}
	}
	return append(shown, b)
}

// find is the policy of a limit of the feature in a key.
func (f *fields) find(limit counter.Limit, feature string) *policy {
	for i := range f.policies {
		if p := &f.policies[i]; p.limit == limit && strings.HasPrefix(feature, p.prefix) {
			return p
		}
	}
	return nil
}

// appendRateLimit appends the field RateLimit, which is empty if no policy is
// shown. The numbers of a structured field need no library, and the strings were
// written once, in newFields: half of the middleware's time went into httpsfv when
// the library wrote the whole field.
func appendRateLimit(field []byte, shown []balance) []byte {
	for i := range shown {
		b := &shown[i]
		if i > 0 {
			field = append(field, ", "...)
		}
		field = append(field, b.policy.item...)
		field = strconv.AppendInt(field, min(b.remaining, maxInteger), 10)
		field = strconv.AppendInt(append(field, ";t="...), seconds(b.until), 10)
	}
	return field
}

// seconds rounds up: a client that comes back a moment early is denied.
func seconds(d time.Duration) int64 { return ceil(int64(d)) }

func ceil(ns int64) int64 { return (ns + int64(time.Second) - 1) / int64(time.Second) }
