package tiers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/internal/dur"
)

// Bounds of a ladder and its windows.
const (
	MaxTiers  = 8                // tiers of a ladder, at most
	MinWidth  = time.Millisecond // width of a tier, at least
	MinWindow = 10 * time.Millisecond
	MaxWindow = 366 * 24 * time.Hour // also the longest that a tier is kept
)

// Tier is a rod of a [Ladder]: buckets of one width.
type Tier struct {
	Width time.Duration // length of a bucket
	Keep  time.Duration // the longest window that may read this tier
}

// String is the form that [Parse] reads: "1m:1d".
func (t Tier) String() string { return dur.Format(t.Width) + ":" + dur.Format(t.Keep) }

// Ladder is the list of tiers that every hit of a key is added to, finest
// first. A Ladder is immutable, small, and copied freely. The zero Ladder has no
// tiers and covers no window. Most programs use [Default], or [For] with the
// windows that the program limits.
//
// Each further tier costs an increment per hit, and shortens covers. The width of
// a window's oldest bucket is the error of the window's count: keep a fine tier
// long for precision, short for memory.
type Ladder struct{ tiers []Tier }

// Default counts windows from a second to a day, exact to the second:
// seconds, minutes and hours, each kept for a day.
var Default = Ladder{[]Tier{{time.Second, dur.Day}, {time.Minute, dur.Day}, {time.Hour, dur.Day}}}

// New checks tiers, finest first, and makes a ladder: one to eight tiers, each
// width at least a millisecond and a whole multiple of the finer width, each tier
// kept at least as long as its width and as the finer tier, and at most for 366
// days. The error names the first value that breaks a rule.
func New(tiers ...Tier) (Ladder, error) {
	if len(tiers) == 0 {
		return Ladder{}, errors.New("tiers: a ladder needs at least one tier")
	}
	if len(tiers) > MaxTiers {
		return Ladder{}, fmt.Errorf("tiers: %d tiers, want at most %d", len(tiers), MaxTiers)
	}
	var below Tier
	for i, t := range tiers {
		switch {
		case t.Width < MinWidth:
			return Ladder{}, fmt.Errorf("tiers: width %s is below %s", dur.Format(t.Width), dur.Format(MinWidth))
		case t.Keep < t.Width:
			return Ladder{}, fmt.Errorf("tiers: %s is kept for less than its own width", t)
		case t.Keep > MaxWindow:
			return Ladder{}, fmt.Errorf("tiers: %s is kept for more than %s", t, dur.Format(MaxWindow))
		case t.Width == below.Width:
			return Ladder{}, fmt.Errorf("tiers: width %s stands there twice", dur.Format(t.Width))
		case t.Width < below.Width:
			return Ladder{}, fmt.Errorf("tiers: width %s comes after %s, want the finest first", dur.Format(t.Width), dur.Format(below.Width))
		case i > 0 && t.Width%below.Width != 0:
			return Ladder{}, fmt.Errorf("tiers: width %s is not a multiple of %s", dur.Format(t.Width), dur.Format(below.Width))
		case t.Keep < below.Keep:
			return Ladder{}, fmt.Errorf("tiers: %s is kept for less than the finer %s", t, below)
		}
		below = t
	}
	return Ladder{slices.Clone(tiers)}, nil
}

// Parse reads the form that [Ladder.String] writes: tiers as width:keep,
// finest first, separated by commas, such as "1s:1d, 1m:1d, 1h:30d". Durations
// may use d (24 hours) and w (7 days) besides Go's own units.
func Parse(s string) (Ladder, error) {
	var tiers []Tier
	for field := range strings.SplitSeq(s, ",") {
		width, keep, found := strings.Cut(strings.TrimSpace(field), ":")
		w, widthErr := dur.Parse(strings.TrimSpace(width))
		k, keepErr := dur.Parse(strings.TrimSpace(keep))
		switch {
		case !found:
			return Ladder{}, fmt.Errorf("tiers: %q: want width:keep, such as 1m:1d", strings.TrimSpace(field))
		case widthErr != nil:
			return Ladder{}, fmt.Errorf("tiers: width: %w", widthErr)
		case keepErr != nil:
			return Ladder{}, fmt.Errorf("tiers: keep: %w", keepErr)
		}
		tiers = append(tiers, Tier{w, k})
	}
	return New(tiers...)
}

// For returns a ladder for the given windows. The finest buckets of a window are at
// most a twentieth of its length: the widest of 1 ms, 5 ms, 50 ms and 1 s that is
// so, and 1 ms for a window below 20 ms. Such a finer tier is kept for as long as a
// window needs the tier. Seconds follow, and, as far as the longest window has use
// for them, minutes, hours, and beyond a day days; ten seconds take the place of
// the minute below two minutes, so that buckets do not outlive their window by its
// length. These are kept for the longest window: windows of 20 s and more are
// exact to the second. A window outside
// [MinWindow] and [MaxWindow] is taken for the nearest window inside. Without a
// window the ladder is [Default].
func For(windows ...time.Duration) Ladder {
	if len(windows) == 0 {
		return Default
	}
	longest := min(max(slices.Max(windows), MinWindow), MaxWindow)
	var tiers []Tier
	for _, t := range []struct{ width, below time.Duration }{ // width, and the windows that need it as their finest
		{time.Millisecond, 100 * time.Millisecond},
		{5 * time.Millisecond, time.Second},
		{50 * time.Millisecond, 20 * time.Second},
	} {
		var keep time.Duration
		for _, w := range windows {
			if w = min(max(w, MinWindow), MaxWindow); w < t.below {
				keep = max(keep, w)
			}
		}
		// A finer tier with the same Keep already serves these windows.
		if keep > 0 && (len(tiers) == 0 || tiers[len(tiers)-1].Keep < keep) {
			tiers = append(tiers, Tier{t.width, keep})
		}
	}
	for _, t := range []struct{ width, from, below time.Duration }{ // width, and the longest windows that use it
		{time.Second, time.Second, MaxWindow + 1},
		{10 * time.Second, 20 * time.Second, 2 * time.Minute},
		{time.Minute, 2 * time.Minute, MaxWindow + 1},
		{time.Hour, time.Hour, MaxWindow + 1},
		{dur.Day, dur.Day + 1, MaxWindow + 1},
	} {
		if t.from <= longest && longest < t.below {
			tiers = append(tiers, Tier{t.width, longest})
		}
	}
	return Ladder{tiers}
}

// Len is the number of tiers.
func (l Ladder) Len() int { return len(l.tiers) }

// At is tier i; 0 is the finest.
func (l Ladder) At(i int) Tier { return l.tiers[i] }

// Equal reports whether l and m have the same tiers.
func (l Ladder) Equal(m Ladder) bool { return slices.Equal(l.tiers, m.tiers) }

// Tiers is a copy of the tiers, finest first.
func (l Ladder) Tiers() []Tier { return slices.Clone(l.tiers) }

// String is the form that [Parse] reads: "1s:1d, 1m:1d, 1h:1d".
func (l Ladder) String() string {
	parts := make([]string, len(l.tiers))
	for i, t := range l.tiers {
		parts[i] = t.String()
	}
	return strings.Join(parts, ", ")
}

// MarshalText returns String: the empty text for the zero Ladder.
func (l Ladder) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what [Parse] reads, and the empty text as the zero Ladder.
// After an error l is unchanged.
func (l *Ladder) UnmarshalText(text []byte) error {
	read, err := Parse(string(text))
	if err != nil && len(text) > 0 {
		return err
	}
	*l = read
	return nil
}

// Buckets is the bucket of each tier, finest first, that holds t.
func (l Ladder) Buckets(t time.Time) []Bucket {
	buckets := make([]Bucket, len(l.tiers))
	for i, tier := range l.tiers {
		buckets[i] = Bucket{tier.Width, Index(t.UnixNano(), tier.Width)}
	}
	return buckets
}

// Finest returns the number of the finest tier that is kept for the whole window;
// the window's oldest bucket is read there, and the width of the tier is the error
// of the window's count. Finest returns an error if no tier is kept long enough, if
// the tier is wider than the window, or if the window is shorter than 10 ms or
// longer than 366 days.
func (l Ladder) Finest(window time.Duration) (int, error) {
	if window < MinWindow || window > MaxWindow {
		return 0, fmt.Errorf("tiers: a window of %s, want %s to %s", dur.Format(window), dur.Format(MinWindow), dur.Format(MaxWindow))
	}
	i := slices.IndexFunc(l.tiers, func(t Tier) bool { return t.Keep >= window })
	if i < 0 {
		return 0, fmt.Errorf("tiers: a window of %s is longer than any tier of ladder %q is kept", dur.Format(window), l)
	}
	if width := l.tiers[i].Width; width > window {
		return 0, fmt.Errorf("tiers: a window of %s would be read in buckets of %s: ladder %q keeps no finer tier that long", dur.Format(window), dur.Format(width), l)
	}
	return i, nil
}

// Decision returns the number of the decision tier of a window: the coarsest tier
// no wider than the window, the same at every moment. Without such a tier the
// number is -1.
func (l Ladder) Decision(window time.Duration) int {
	i := len(l.tiers) - 1
	for i >= 0 && l.tiers[i].Width > window {
		i--
	}
	return i
}

// Base returns the number of the finest tier that is kept as long as tier i. A store
// may keep the buckets of the base tier alone, each for as long as the coarser bucket
// around it, and count the coarser bucket as their sum.
func (l Ladder) Base(i int) int {
	return slices.IndexFunc(l.tiers, func(t Tier) bool { return t.Keep == l.tiers[i].Keep })
}
