package limiter

import (
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
)

// own is the note of a feature: what a call says of this feature alone.
type own struct {
	limits counter.Limits // of Under; empty: none
	times  bool           // n is the number of hits
	n      int64
	charge bool
}

// noNote is the note of a feature of which a call says nothing.
var noNote own

// ownOf returns the note of f, which is not to be changed.
func ownOf(f *feature.Feature) *own {
	if o, is := f.Note().(*own); is {
		return o
	}
	return &noNote
}

// Under returns f under limits of the call instead of the limits of the rule, such
// as those of a plan, a tenant or a request:
//
//	v, err := lim.Allow(ctx, "mail", limiter.Under(feature.New("tenant", "7"), pro))
//
// The hits are counted where they always are, so whoever gets other limits keeps the
// usage. The ladder of the rule must keep buckets for the windows of limits: see
// [Rule.Plans]. Without limits those of the rule hold. The limits must not be changed
// while a Verdict of the call is in use. They are in the note of the feature.
func Under(f feature.Feature, limits counter.Limits) feature.Feature {
	o := *ownOf(&f)
	o.limits = limits
	return f.With(&o)
}

// Times returns f with n hits for a call, instead of the n of the call: 0 to
// [counter.MaxCount]. With an n of 0 nothing is counted for f: it denies the call if a
// limit is over already, as in a Peek of 0, and begins no ban.
//
//	v, err := lim.Allow(ctx, "ask", feature.IP(addr), limiter.Times(feature.New("model", "large"), tokens))
//
// If no feature of a call has hits, the call is not counted, and its Verdict cannot be
// refunded. Equal features count once, with the larger n. A missing feature has its n
// under MissingShare. Decision.N remains the n of the call.
//
// A call with an n out of range is an error.
func Times(f feature.Feature, n int64) feature.Feature {
	o := *ownOf(&f)
	o.times, o.n = true, n
	return f.With(&o)
}

// Charged returns f with hits that are counted whatever its limits, in a call that its
// other features may deny; a denied call counts nothing. The limits of f deny no one,
// begin no ban, and heed none. [Verdict.All] has their states: a RetryAfter above 0 is
// the time until a limit that is over has room again. The flat fields of a Verdict
// describe them only if all features are charged. Of equal features the first says
// whether they are charged.
//
// Charged is for a cost that is known next to features that are yet to be admitted;
// [Limiter.Charge] charges all features.
func Charged(f feature.Feature) feature.Feature {
	o := *ownOf(&f)
	o.charge = true
	return f.With(&o)
}

// hits is the number of hits of a feature with the note o, in a call for n.
func (o *own) hits(n int64) int64 {
	if o.times {
		return o.n
	}
	return n
}

// wrong reports whether the hits of Times are out of range.
func (o *own) wrong() bool { return o.n < 0 || o.n > counter.MaxCount }
