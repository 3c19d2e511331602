package backend

// Binder is a [Local] store with an atomic step that prepares limits: what is
// the same for all keys of an event is looked up once, and most admissions need
// no [TakeRequest]. The interface is optional, and there to save time alone: a
// Counter gets the same verdicts without.
//
// [Wrap] does not keep the interface, since an Around sees every call.
type Binder interface {
	Atomic
	Local

	// Bind prepares the admissions of keys that begin with t.Key and have the
	// Ladder, the TTLs and the Windows of t. Bind returns nil if the store has no
	// short way for these windows, or if the store is not asked. A struct with an
	// embedded Binder has the Binder's Bind, and may have a Take of its own:
	// Admit would pass by this Take. asked is the store of the Counter.
	Bind(asked Store, t *TakeKey) Quota
}

// Quota is the short way to a single key, prepared by a [Binder].
type Quota interface {
	// Admit does a Take of n hits of the key that ends with rest, labelled
	// label, in nanoseconds since the Unix epoch; the calling Counter has
	// checked the label. Admit admits or does nothing: for any other answer, and
	// for an admission that is not at hand, the caller asks Take. An admission
	// is that of a Take whose Newest is in every Window the bucket of tier
	// Finest that holds label.
	Admit(rest string, n, label int64) Admission
}

// Admission is the answer of [Quota.Admit]. The zero Admission: nothing was
// done.
type Admission struct {
	// Number is not zero if the hits were added. No other admission of the
	// store has the same Number, by whichever Quota.
	Number uint64

	// Counts holds the Count of each Window, of the first MaxAdmission.
	Counts [MaxAdmission]int64
}

// MaxAdmission is the largest number of windows of a [Quota].
const MaxAdmission = 3
