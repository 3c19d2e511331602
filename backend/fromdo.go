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

// perTrip is the number of buckets of a trip of a Forget.
const perTrip = 250

func (s fromDo) Forget(ctx context.Context, r *ForgetRequest) error {
	if r.Erase {
		return fmt.Errorf("backend: Erase: the store can add and read, and not delete: %w", errors.ErrUnsupported)
	}
	if err := s.remember(ctx, r, r.Label); err != nil {
		return err
	}
	found, err := s.find(ctx, r)
	if err != nil {
		return err
	}
	for _, slots := range found {
		for part := range slices.Chunk(slots, perTrip) {
			back := r.request(r.Key, r.Ladder)
			back.N, back.Add = -MaxCount, part
			if err := s.do(ctx, &back); err != nil {
				return err
			}
		}
	}
	return s.remember(ctx, r, r.Latest())
}

// request returns a request of the Forget: whatever the label, the buckets count
// that the store still has.
func (r *ForgetRequest) request(key string, ladder tiers.Ladder) Request {
	return Request{Key: key, Ladder: ladder, Now: r.Now, Deadline: r.Deadline, AnyLabel: true}
}

// find returns the buckets of r.Key that count anything, by tier, finest first. Tiers
// are read coarsest first, and finer tiers only where a coarser bucket counts. Tiers
// with the same Keep are read equally far back: a store may compute the coarser
// buckets from the finer.
func (s fromDo) find(ctx context.Context, r *ForgetRequest) ([][]Slot, error) {
	now := r.Now.UnixNano()
	found := make([][]Slot, r.Ladder.Len())
	var back, keep time.Duration
	for i := len(found) - 1; i >= 0; i-- {
		t, ttl := r.Ladder.At(i), r.TTLs[i]
		if t.Keep != keep {
			back, keep = ttl, t.Keep
		}
		first := tiers.Index(now-int64(back), t.Width)
		around := []tiers.Run{{Width: t.Width, First: first, N: tiers.Index(now+int64(ttl), t.Width) - first + 1}}
		if i < len(found)-1 {
			around = nil
			for _, slot := range found[i+1] {
				ratio := int64(slot.Width / t.Width)
				begin := max(first, slot.Index*ratio)
				around = append(around, tiers.Run{Width: t.Width, First: begin, N: (slot.Index+1)*ratio - begin})
			}
		}
		for _, run := range around {
			counts, err := s.read(ctx, r, r.Key, r.Ladder, run)
			if err != nil {
				return nil, err
			}
			for j, n := range counts {
				if n > 0 {
					found[i] = append(found[i], Slot{Bucket: tiers.Bucket{Width: t.Width, Index: run.First + int64(j)}, TTL: ttl})
				}
			}
		}
	}
	return found, nil
}

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

// labels is the ladder of the keys that remember labels. A label is remembered by
// the bucket of its second, which counts the nanoseconds from the bucket's start
// to the label, and one.
var labels = func() tiers.Ladder {
	l, err := tiers.New(
		tiers.Tier{Width: time.Second, Keep: tiers.MaxWindow},
		tiers.Tier{Width: time.Minute, Keep: tiers.MaxWindow},
		tiers.Tier{Width: time.Hour, Keep: tiers.MaxWindow},
		tiers.Tier{Width: 24 * time.Hour, Keep: tiers.MaxWindow},
	)
	if err != nil {
		panic(err) // the rules of a ladder have changed
	}
	return l
}()

// labelKey returns the key that remembers labels of key: its prefix, and a digest.
func labelKey(key string) string {
	prefix, _, _ := strings.Cut(key, ":")
	digest := sha256.Sum256([]byte(key))
	return prefix + ":!!" + base64.RawURLEncoding.EncodeToString(digest[:])
}

// remember remembers a label.
func (s fromDo) remember(ctx context.Context, r *ForgetRequest, label int64) error {
	known, err := s.Forgotten(ctx, r)
	if err != nil || known != 0 && known >= label {
		return err
	}
	second := tiers.Index(label, time.Second) * int64(time.Second)
	n := label - second + 1
	if known != 0 && known >= second {
		n = label - known
	}
	add := r.request(labelKey(r.Key), labels)
	add.N = n
	for _, b := range labels.Buckets(time.Unix(0, label)) {
		add.Add = append(add.Add, Slot{Bucket: b, TTL: r.Remember + b.Width})
	}
	return s.do(ctx, &add)
}

// Forgotten looks for the newest bucket that counts, coarsest first.
func (s fromDo) Forgotten(ctx context.Context, r *ForgetRequest) (label int64, err error) {
	top := labels.At(labels.Len() - 1)
	now := r.Now.UnixNano()
	first := tiers.Index(now-int64(r.Remember), top.Width)
	// A label may be ahead of this caller's clock, and stays remembered.
	run := tiers.Run{Width: top.Width, First: first, N: tiers.Index(now+int64(r.Remember), top.Width) - first + 1}
	for i := labels.Len() - 1; ; i-- {
		counts, err := s.read(ctx, r, labelKey(r.Key), labels, run)
		if err != nil {
			return 0, err
		}
		j := len(counts) - 1
		for j >= 0 && counts[j] == 0 {
			j--
		}
		if j < 0 {
			return 0, nil
		}
		newest := run.First + int64(j)
		if i == 0 {
			return newest*int64(run.Width) + min(counts[j], int64(run.Width)) - 1, nil
		}
		width := labels.At(i - 1).Width
		ratio := int64(run.Width / width)
		run = tiers.Run{Width: width, First: newest * ratio, N: ratio}
	}
}
