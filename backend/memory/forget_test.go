package memory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/cover"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/tiers"
)

func forgetting(key string, now time.Time) *backend.ForgetRequest {
	return &backend.ForgetRequest{Key: key, Ladder: tiers.Default, Now: now, Label: now.UnixNano(), Remember: 26 * time.Hour}
}

func (s *Store) mustForget(t testing.TB, f *backend.ForgetRequest) {
	require.NoError(t, s.Forget(context.Background(), f))
}

func (s *Store) forgotten(t testing.TB, key string, now time.Time) int64 {
	return try.To(s.Forgotten(context.Background(), &backend.ForgetRequest{Key: key, Now: now}))(t)
}

// The marker takes the key's memory, lives for as long as it must, and is
// reclaimed as a key is.
func TestMarkers(t *testing.T) {
	s := storeFor(2, Refuse)
	hit(t, s, "k", noon)
	hit(t, s, "other", noon)
	full := s.Stats().Buckets
	require.EqualValues(t, s.max, full)
	s.mustForget(t, forgetting("k", noon)) // in a store that is full
	require.Equal(t, full, s.Stats().Buckets)
	require.Nil(t, s.lookup("k"))
	require.Equal(t, noon.UnixNano(), s.forgotten(t, "k", noon))
	require.Equal(t, noon.UnixNano(), s.forgotten(t, "k", noon.Add(26*time.Hour-1)))
	require.Zero(t, s.forgotten(t, "k", noon.Add(28*time.Hour)))
	require.EqualValues(t, 1, s.count(t, "other", noon))
	requireSound(t, s)

	// Keys that are not known leave nothing, however many.
	for i := range 1000 {
		s.mustForget(t, forgetting(fmt.Sprint("never", i), noon))
	}
	require.Equal(t, full, s.Stats().Buckets)

	later := noon.Add(28 * time.Hour)
	hit(t, s, "fresh", later)
	require.EqualValues(t, 1, s.Stats().Reclaimed)
	requireSound(t, s)

	// A marker is no count that a label could need: no label is stale for it.
	s = storeFor(1, Refuse)
	hit(t, s, "k", noon)
	s.mustForget(t, forgetting("k", noon))
	hit(t, s, "k", later)
	require.EqualValues(t, 1, s.Stats().Reclaimed)
	mustTake(t, s, taking(t, dayLadder, "fresh", later.Add(-time.Hour), per(0, day)))
}

// A store evicts markers in the order of labels.
func TestMarkersAreEvicted(t *testing.T) {
	s := storeFor(2, EvictOldest)
	hit(t, s, "a", noon)
	s.mustForget(t, forgetting("a", noon))
	hit(t, s, "b", noon.Add(time.Second))
	hit(t, s, "c", noon.Add(2*time.Second))
	require.Zero(t, s.forgotten(t, "a", noon))
	s.mustForget(t, forgetting("c", noon.Add(3*time.Second)))
	hit(t, s, "d", noon.Add(4*time.Second))
	require.Nil(t, s.lookup("b"))
	require.NotZero(t, s.forgotten(t, "c", noon))
	requireSound(t, s)
}

// Forgetting again keeps the newest label and the longest time.
func TestTheNewestMarkerStays(t *testing.T) {
	s := New(Config{})
	for i, row := range []struct {
		label    int64
		remember time.Duration
		want     int64 // after each of them
		until    time.Duration
	}{
		{100, time.Hour, 100, time.Hour},
		{50, time.Minute, 100, time.Hour},
		{200, time.Minute, 200, time.Hour},
		{150, 3 * time.Hour, 200, 3 * time.Hour},
	} {
		f := forgetting("k", noon)
		row.label, row.want = noon.UnixNano()+row.label, noon.UnixNano()+row.want
		f.Label, f.Remember = row.label, row.remember
		hit(t, s, "k", noon)
		s.mustForget(t, f)
		require.Equal(t, row.want, s.forgotten(t, "k", noon), i)
		require.Equal(t, row.want, s.forgotten(t, "k", noon.Add(row.until-1)), i)
		requireSound(t, s)
	}
	// Labels far from the clock, or at the ends of time, and a marker that had expired.
	for _, row := range []struct {
		now   time.Time
		label int64
	}{{noon, -1}, {noon, 1}, {noon, forever - 2}, {cover.MinTime, cover.MinTime.UnixNano()}, {cover.MaxTime.Add(-day), cover.MaxTime.UnixNano()}} {
		f := forgetting(fmt.Sprint(row.label), row.now)
		f.Label = row.label
		hit(t, s, f.Key, row.now)
		s.mustForget(t, f)
		require.Equal(t, row.label, s.forgotten(t, f.Key, row.now.Add(23*time.Hour)))
		requireSound(t, s)
	}
	f := forgetting("k", noon.Add(365*day))
	f.Label = 7
	s.mustForget(t, f)
	require.EqualValues(t, 7, s.forgotten(t, "k", f.Now))
	f.Remember = -1
	require.ErrorContains(t, s.Forget(context.Background(), f), "-1ns")
	f.Now = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
	require.ErrorContains(t, s.Forget(context.Background(), f), "2300")
	require.ErrorContains(t, try.Err(s.Forgotten(context.Background(), f)), "2300")
}
