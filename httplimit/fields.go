package httplimit

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
)

// fields has the limits of an event's rules under public names, and writes verdicts as
// RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11, structured
// fields of RFC 9651.
// RateLimit-Policy lists the limits of the call, which are no secret and the same
// for all clients, unless a rule has limits by call; RateLimit lists the remaining
// counts of the kinds in Config.Show. Immutable, but for the memory of byCall.
type fields struct {
	generation uint64   // of the rules
	show       []string // the kinds whose remaining count is told
	policies   []policy
	policy     string      // the field RateLimit-Policy
	single     bool        // a verdict has at most one state: of a single feature under a single limit
	byCall     *callFields // nil: no rule has limits by call
}

// policy is a limit of a rule under its public name.
type policy struct {
	kind   string
	prefix string // of the key of a feature of the kind
	limit  counter.Limit
	name   string
	item   string // name as a string of a structured field, and the key of its first parameter in RateLimit
	shown  bool
	denial *Problem // of a denial by this policy alone, with its text
	ban    *Problem // the same of a ban
}

// callFields remembers the fields of calls with limits of their own, by these limits.
type callFields struct {
	known sync.Map // from string to *fields
	count atomic.Int64
}

// maxCallFields bounds the fields that are remembered. Beyond, fields are made for each
// call.
const maxCallFields = 64

// maxInteger is the largest number of a structured field: RFC 9651, section
// 3.3.1.
const maxInteger = 999_999_999_999_999

// fieldsNow returns the fields of the current rules.
func (m *middleware) fieldsNow() *fields {
	f := m.fields.Load()
	if generation := m.Limiter.Generation(); f.generation != generation {
		f = m.derive(generation)
		m.fields.Store(f)
	}
	return f
}

// derive makes the fields of a generation of the rules, which is read before the rules:
// if the rules change meanwhile, the next request derives again. Soft rules have no
// policies, and neither have limits by call.
func (m *middleware) derive(generation uint64) *fields {
	var policies []policy
	show, byCall := slices.Clip(m.Show), false
	for _, r := range m.Limiter.Rules(m.Event) {
		if r.Else == feature.KindIP && slices.Contains(m.Show, r.Kind) {
			show = append(show, r.Else)
		}
		byCall = byCall || r.LimitsOf != nil || r.Else != "" || r.Percent > 0 ||
			slices.ContainsFunc(r.Overrides, func(o limiter.Override) bool { return o.Limits != nil })
		if r.Soft {
			continue
		}
		for _, limit := range r.Limits {
			policies = append(policies, policy{kind: r.Kind, limit: limit})
		}
		for _, limit := range r.ElseLimits {
			policies = append(policies, policy{kind: r.Else, limit: limit})
		}
	}
	f := m.newFields(policies, show)
	f.generation, f.single = generation, len(policies) == 1 && len(m.Features) <= 1 && !byCall
	if byCall {
		f.byCall = &callFields{}
	}
	return f
}

// newFields makes the fields of policies, of which kind and limit are set.
func (m *middleware) newFields(policies []policy, show []string) *fields {
	all := make([]string, len(policies))
	for i := range policies {
		p := &policies[i]
		p.prefix, p.name, p.shown = p.kind+":", p.limit.String(), slices.Contains(show, p.kind)
		for j := range policies {
			if j != i && policies[j].limit == p.limit { // two kinds have the same limit
				p.name = p.prefix + p.limit.String()
			}
		}
		quoted, _ := httpsfv.Marshal(httpsfv.NewItem(p.name)) // cannot fail: a kind is printable ASCII
		p.item, all[i] = quoted+";r=", fmt.Sprintf("%s;q=%d", quoted, min(p.limit.Max, maxInteger))
		if p.limit.Per > 0 && p.limit.Per%time.Second == 0 { // "w" counts whole seconds; a month has no length
			all[i] += fmt.Sprintf(";w=%d", p.limit.Per/time.Second)
		}
		p.denial, p.ban = m.deniedBy([]*policy{p}, false), m.deniedBy([]*policy{p}, true)
		p.denial.text, p.ban.text = p.denial.body(), p.ban.body()
	}
	return &fields{show: show, policies: policies, policy: strings.Join(all, ", ")}
}

// states returns the states of v, in room if that is large enough. The flat fields say that
// of a single limit.
func (f *fields) states(v *limiter.Verdict, room []counter.State) []counter.State {
	switch {
	case !f.single:
		return append(room, v.All()...)
	case v.Limit == counter.Limit{}:
		return nil // no limit was asked
	}
	return append(room, counter.State{Key: v.Key, Limit: v.Limit, Remaining: v.Remaining, RetryAfter: v.RetryAfter, ResetAfter: v.ResetAfter})
}

// of returns the fields of a verdict with these states, where f are the fields of the
// rules.
func (f *fields) of(m *middleware, states []counter.State) *fields {
	if f.byCall == nil || len(states) == 0 {
		return f
	}
	var buf [128]byte
	limits := buf[:0]
	for i := range states {
		s := &states[i]
		limits = append(append(limits, feature.KindOf(s.Key.Feature)...), ':')
		limits = strconv.AppendInt(append(strconv.AppendInt(limits, s.Limit.Max, 10), '/'), int64(s.Limit.Per), 10)
		limits = append(append(limits, s.Limit.Period.String()...), ':') // which no kind has, and no period
	}
	if known, ok := f.byCall.known.Load(string(limits)); ok {
		return known.(*fields)
	}
	var policies []policy
	for i := range states {
		p := policy{kind: feature.KindOf(states[i].Key.Feature), limit: states[i].Limit}
		if !slices.ContainsFunc(policies, func(q policy) bool { return q.kind == p.kind && q.limit == p.limit }) {
			policies = append(policies, p)
		}
	}
	made := m.newFields(policies, f.show)
	if f.byCall.count.Add(1) <= maxCallFields {
		f.byCall.known.Store(string(limits), made)
	}
	return made
}

// find returns the policy of the limit of s.
func (f *fields) find(s *counter.State) *policy {
	for i := range f.policies {
		if p := &f.policies[i]; p.limit == s.Limit && strings.HasPrefix(s.Key.Feature, p.prefix) {
			return p
		}
	}
	return nil
}

// violated appends the policies that deny to all, each once.
func (f *fields) violated(all []*policy, states []counter.State) []*policy {
	for i := range states {
		if s := &states[i]; s.RetryAfter > 0 {
			if p := f.find(s); p != nil && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

// lines are the values of the header fields of an answer, which share an allocation.
type lines []string

// set is http.Header.Set for a name in the spelling of net/http. The field has no room
// behind its value.
func (l *lines) set(h http.Header, name, value string) {
	*l = append(*l, value)
	n := len(*l)
	h[name] = (*l)[n-1 : n : n]
}

// add is http.Header.Add: an outer middleware may have fields of its own.
func (l *lines) add(h http.Header, name, value string) {
	if before := h[name]; len(before) > 0 {
		h[name] = append(before, value)
		return
	}
	l.set(h, name, value)
}

// Names of the fields, in the spelling of net/http.
var (
	policyKey     = http.CanonicalHeaderKey("RateLimit-Policy")
	limitKey      = http.CanonicalHeaderKey("RateLimit")
	retryAfterKey = http.CanonicalHeaderKey("Retry-After")
)

// write says v, a verdict with these states, in the header of an answer.
func (f *fields) write(l *lines, h http.Header, cfg *Config, v *limiter.Verdict, states []counter.State) {
	var room [4]balance
	shown := room[:0]
	if v.RetryAfter != counter.Never { // else the cost is above a limit, and the store was not asked
		for i := range states {
			shown = f.add(shown, &states[i])
		}
	}
	var buf [192]byte
	text := buf[:0]
	if v.RetryAfter > 0 && v.RetryAfter != counter.Never {
		text = strconv.AppendInt(text, seconds(v.RetryAfter), 10)
	}
	wait := len(text)
	if !cfg.NoHeaders {
		text = appendRateLimit(text, shown)
	}
	all := string(text) // of both fields
	if wait > 0 {
		l.set(h, retryAfterKey, all[:wait])
	}
	if !cfg.NoHeaders {
		l.add(h, policyKey, f.policy)
		if wait < len(all) {
			l.add(h, limitKey, all[wait:])
		}
	}
	if cfg.LegacyHeaders && len(shown) > 0 {
		least := slices.MinFunc(shown, balance.compare)
		h.Set("X-RateLimit-Limit", strconv.FormatInt(least.policy.limit.Max, 10))
		h.Set("X-RateLimit-Remaining", strconv.FormatInt(least.remaining, 10))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(ceil(time.Now().Add(least.until).UnixNano()), 10))
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

// add adds the policy of a state to shown, if the policy is shown: once, among
// several features of a kind the feature with the least remaining count.
func (f *fields) add(shown []balance, s *counter.State) []balance {
	p := f.find(s)
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
