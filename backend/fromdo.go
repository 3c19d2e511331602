package backend

import (
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
// Forget takes back every bucket that it finds, in trips of at most 250 buckets: in
// a call of the key that is under way at that moment, hits may be half forgotten.
// The label is counted, in buckets of a key of its own; of Forgets that race within
// a second a label up to the end of this second may be remembered. Forget cannot
// delete: with Erase the error is errors.ErrUnsupported. Check adds a hit and
// removes it; clocks, evictions and restarts cannot be seen, which is an
// [ErrCondition].
func FromDo(do func(context.Context, *Request) error) Store { return fromDo{do} }

type fromDo struct {
	do func(context.Context, *Request) error
}

func (s fromDo) Do(ctx context.Context, r *Request) error { return s.do(ctx, r) }

func (s fromDo) Report() Report { return Report{} }

func (s fromDo) CheckServers(ctx context.Context, r *CheckRequest) error {
	r.Servers = nil
	probe := r.Probe(r.Key)
	if err := s.do(ctx, probe); err != nil {
		return err
	}
	probe.N = -1
	if err := s.do(ctx, probe); err != nil {
		return err
	}
	return Unmet("the store makes additions, but does not show the clocks, evictions and restarts of its servers")
}

func (s fromDo) Forget(ctx context.Context, r *ForgetRequest) error {
	if r.Erase {
		return fmt.Errorf("backend: Erase: the store can add and read, and not delete: %w", errors.ErrUnsupported)
	}
	if err := s.remember(ctx, r, r.Label); err != nil {
		return err
	}
	top := r.Ladder.Len() - 1
	if err := s.empty(ctx, r, top, around(r.Now.UnixNano(), r.TTLs[top], r.Ladder.At(top).Width)); err != nil {
		return err
	}
	return s.remember(ctx, r, r.Latest())
}

// empty takes back what the buckets of a tier count, and before that what their finer
// buckets count: a second Forget finds the rest after an error. All finer buckets are
// read, even those that are older than their tier's Keep: in a store with an expiry of
// its own the life of a bucket begins at its creation, whatever the label.
func (s fromDo) empty(ctx context.Context, r *ForgetRequest, tier int, run tiers.Run) error {
	counts, err := s.read(ctx, r, r.Key, r.Ladder, run)
	if err != nil {
		return err
	}
	var found []Slot
	for i, n := range counts {
		if n == 0 {
			continue
		}
		b := tiers.Bucket{Width: run.Width, Index: run.First + int64(i)}
		found = append(found, Slot{Bucket: b, TTL: r.TTLs[tier]})
		if tier == 0 {
			continue
		}
		finer := r.Ladder.At(tier - 1).Width
		ratio := int64(b.Width / finer)
		if err := s.empty(ctx, r, tier-1, tiers.Run{Width: finer, First: b.Index * ratio, N: ratio}); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(found, perTrip) {
		back := r.request(r.Key, r.Ladder)
		back.N, back.Add = -MaxCount, part
		if err := s.do(ctx, &back); err != nil {
			return err
		}
	}
	return nil
}

// around returns the buckets that hold what is at most d apart from the label at.
func around(at int64, d time.Duration, width time.Duration) tiers.Run {
	first := tiers.Index(at-int64(d), width)
	return tiers.Run{Width: width, First: first, N: tiers.Index(at+int64(d), width) - first + 1}
}

// request returns a request of the Forget: whatever the label, the buckets count
// that the store still has.
func (r *ForgetRequest) request(key string, ladder tiers.Ladder) Request {
	return Request{Key: key, Ladder: ladder, Now: r.Now, Deadline: r.Deadline, AnyLabel: true}
}

// perTrip is the number of buckets of a trip.
const perTrip = 250

// read returns the counts of a run of buckets.
func (s fromDo) read(ctx context.Context, r *ForgetRequest, key string, ladder tiers.Ladder, run tiers.Run) ([]int64, error) {
	counts := make([]int64, max(0, run.N))
	first := run.First
	for part := range slices.Chunk(counts, perTrip) {
		trip := r.request(key, ladder)
		trip.Read = []Span{{Width: run.Width, First: first, Counts: part}}
		if err := s.do(ctx, &trip); err != nil {
			return nil, err
		}
		first += int64(len(part))
	}
	return counts, nil
}

// labels is the ladder of the keys that remember labels: seconds, minutes, hours and
// days. A label is remembered by the bucket of its second, which counts the
// nanoseconds from the bucket's start to the label, and one.
var labels = tiers.For(tiers.MaxWindow)

// labelKey returns the key that remembers labels of key: its prefix, and a digest.
func labelKey(key string) string {
	prefix, _, _ := strings.Cut(key, ":")
	digest := sha256.Sum256([]byte(key))
	return prefix + ":!!" + base64.RawURLEncoding.EncodeToString(digest[:])
}

// remember remembers a label, unless a later label is remembered.
func (s fromDo) remember(ctx context.Context, r *ForgetRequest, label int64) error {
	known, err := s.Forgotten(ctx, r)
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
	return s.do(ctx, &add)
}

// Forgotten looks for the newest bucket that counts, coarsest first. A label may be
// ahead of this caller's clock.
func (s fromDo) Forgotten(ctx context.Context, r *ForgetRequest) (label int64, err error) {
	tier := labels.Len() - 1
	run := around(r.Now.UnixNano(), r.Remember, labels.At(tier).Width)
	for {
		counts, err := s.read(ctx, r, labelKey(r.Key), labels, run)
		i := len(counts) - 1
		for i >= 0 && counts[i] == 0 {
			i--
		}
		if err != nil || i < 0 {
			return 0, err
		}
		newest := run.First + int64(i)
		if tier == 0 {
			return newest*int64(run.Width) + min(counts[i], int64(run.Width)) - 1, nil
		}
		tier--
		ratio := int64(run.Width / labels.At(tier).Width)
		run = tiers.Run{Width: labels.At(tier).Width, First: newest * ratio, N: ratio}
	}
}
