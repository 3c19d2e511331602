package backend

// Quota is the fast path to a single key, prepared by the Bind of a [Local] store.
type Quota interface {
	// Admit does a Take of n hits of the key that ends with rest, labelled
	// label, in nanoseconds since the Unix epoch; the calling Counter has
	// checked the label. Where the answer is not at hand, Admit does nothing,
	// and the caller asks Take: always if rest has a %, with which a stored key
	// escapes bytes. An admission is that of a Take whose Newest is in
	// every Window the bucket of tier Finest that holds label.
	Admit(rest string, n, label int64) Admission
}

// Admission is the answer of [Quota.Admit]. The zero Admission: nothing was
// done.
type Admission struct {
	// Number is not zero if the hits were added. No other admission of the
	// store has the same Number, by whichever Quota.
	Number uint64

	// Counts holds the Count of each Window.
	Counts [MaxAdmission]int64

	// Denied is set if a Window has no room, and nothing was added. Newest then
	// holds an instant of the Newest of each Window with a Count, and FreedBy an
	// instant of the FreedBy of each Window without room for the hits.
	Denied          bool
	Newest, FreedBy [MaxAdmission]int64
}

// MaxAdmission is the largest number of windows of a [Quota].
const MaxAdmission = 3
