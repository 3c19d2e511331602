package backend

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/tiers"
)

// FromDo returns a Store whose Do is do, for authors of stores that can do nothing
// else. An author of an [Atomic] store may embed the result.
//
// Forget takes back what it finds, in trips of at most 250 buckets with the same count: in
// a call of the key that is under way at that moment, hits may be half forgotten.
// The label is counted, in buckets of a key of its own; of Forgets that race within
// a second a label up to the end of this second may be remembered. Forget cannot
// delete: with Erase the error is errors.ErrUnsupported. Check adds a hit and
// removes it; clocks, evictions and restarts cannot be seen, which is an
// [ErrCondition].
func FromDo(do func(context.Context, *Request) error) Store { return fromDo(do) }

type fromDo func(context.Context, *Request) error

func (do fromDo) Do(ctx context.Context, r *Request) error { return do(ctx, r) }

func (do fromDo) Report() Report { return Report{} }

func (do fromDo) CheckServers(ctx context.Context, r *CheckRequest) error {
	r.Servers = nil
	probe := r.Probe(r.Key)
	for _, n := range [...]int64{1, -1} {
		probe.N = n
		if err := do(ctx, probe); err != nil {
			return err
		}
	}
	return Unmet("the store makes additions, but does not show the clocks, evictions and restarts of its servers")
}

func (do fromDo) Forget(ctx context.Context, r *ForgetRequest) error {
	if r.Erase {
		return fmt.Errorf("backend: Erase: the store can add and read, and not delete: %w", errors.ErrUnsupported)
	}
	if err := do.remember(ctx, r, r.Label); err != nil {
		return err
	}
	top := r.Ladder.Len() - 1
	if err := do.empty(ctx, r, top, around(r.Now.UnixNano(), r.TTLs[top], r.Ladder.At(top).Width)); err != nil {
		return err
	}
	return do.remember(ctx, r, r.Latest())
}

// empty takes back what the buckets of a tier counted when they were found, buckets of
// the same count in one trip, and before that what their finer buckets count: a second
// Forget finds the rest after an error, and hits from in between. All finer buckets are
// read, even those that are older than their tier's Keep: in a store with an expiry of
// its own the life of a bucket begins at its creation, whatever the label.
func (do fromDo) empty(ctx context.Context, r *ForgetRequest, tier int, run tiers.Run) error {
	found, err := do.read(ctx, r, r.Key, r.Ladder, run)
	if err != nil {
		return err
	}
	for i := range found {
		found[i].TTL = r.TTLs[tier]
		if tier == 0 {
			continue
		}
		if err := do.empty(ctx, r, tier-1, finer(r.Ladder, tier, found[i].Bucket)); err != nil {
			return err
		}
	}
	slices.SortStableFunc(found, func(a, b Slot) int { return cmp.Compare(a.Count, b.Count) })
	for len(found) > 0 {
		alike := 1
		for alike < min(len(found), perTrip) && found[alike].Count == found[0].Count {
			alike++
		}
		back := r.request(r.Key, r.Ladder)
		back.N, back.Add, found = -found[0].Count, found[:alike], found[alike:]
		if err := do(ctx, &back); err != nil {
			return err
		}
	}
	return nil
}

// around returns the buckets that hold what is at most d apart from the label at.
func around(at int64, d, width time.Duration) tiers.Run {
	first := tiers.Index(at-int64(d), width)
	return tiers.Run{Width: width, First: first, N: tiers.Index(at+int64(d), width) - first + 1}
}

// finer returns the buckets of the next finer tier in the bucket b of a tier.
func finer(ladder tiers.Ladder, tier int, b tiers.Bucket) tiers.Run {
	width := ladder.At(tier - 1).Width
	ratio := int64(b.Width / width)
	return tiers.Run{Width: width, First: b.Index * ratio, N: ratio}
}

// request returns a request of the Forget: whatever the label, the buckets count
// that the store still has.
func (r *ForgetRequest) request(key string, ladder tiers.Ladder) Request {
	return Request{Key: key, Ladder: ladder, Now: r.Now, Deadline: r.Deadline, AnyLabel: true}
}

// perTrip is the number of buckets of a trip.
const perTrip = 250

// read returns the buckets of a run that count, the oldest first.
func (do fromDo) read(ctx context.Context, r *ForgetRequest, key string, ladder tiers.Ladder, run tiers.Run) (found []Slot, err error) {
	counts := make([]int64, max(0, min(run.N, perTrip)))
	for end := run.First + run.N; run.First < end; run.First += perTrip {
		counts = counts[:min(end-run.First, perTrip)]
		trip := r.request(key, ladder)
		trip.Read = []Span{{Width: run.Width, First: run.First, Counts: counts}}
		if err := do(ctx, &trip); err != nil {
			return nil, err
		}
		for i, n := range counts {
			if n > 0 {
				found = append(found, Slot{Bucket: tiers.Bucket{Width: run.Width, Index: run.First + int64(i)}, Count: n})
			}
		}
	}
	return found, nil
}

// labels is the ladder of the keys that remember labels: seconds, minutes, hours and
// days. A label is remembered by the bucket of its second, which counts the
// nanoseconds from the bucket's start to the label, and one.
var labels = tiers.For(tiers.MaxWindow)

// labelKey returns the key that remembers labels of key: its prefix up to the colon, if
// there is one, and a digest. The rest of key may be personal data.
func labelKey(key string) string {
	digest := sha256.Sum256([]byte(key))
	return key[:strings.IndexByte(key, ':')+1] + "!!" + base64.RawURLEncoding.EncodeToString(digest[:])
}

// remember remembers a label, unless a later label is remembered.
func (do fromDo) remember(ctx context.Context, r *ForgetRequest, label int64) error {
	known, err := do.Forgotten(ctx, r)
	if err != nil || known != 0 && known >= label {
		return err
	}
	add := r.request(labelKey(r.Key), labels)
	second := tiers.Index(label, time.Second) * int64(time.Second)
	add.N = label - second + 1
	if known != 0 && known >= second {
		add.N = label - known
	}
	for _, b := range labels.Buckets(time.Unix(0, label)) {
		add.Add = append(add.Add, Slot{Bucket: b, TTL: r.Remember + b.Width})
	}
	return do(ctx, &add)
}

// Forgotten looks for the newest bucket that counts, coarsest first. A label may be
// ahead of this caller's clock.
func (do fromDo) Forgotten(ctx context.Context, r *ForgetRequest) (label int64, err error) {
	tier := labels.Len() - 1
	run := around(r.Now.UnixNano(), r.Remember, labels.At(tier).Width)
	for {
		found, err := do.read(ctx, r, labelKey(r.Key), labels, run)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		newest := found[len(found)-1]
		if tier == 0 {
			return newest.Start().UnixNano() + min(newest.Count, int64(newest.Width)) - 1, nil
		}
		run = finer(labels, tier, newest.Bucket)
		tier--
	}
}
