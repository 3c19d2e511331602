package redis

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/tiers"
)

// Forget remembers the label, and then empties the key: one EVALSHA for each 125
// leaves and each 2,000 entries, of which each also remembers its own instant, and
// the last of a group of tiers unlinks the root. What was hit before is counted
// until then.
func (s *Store) Forget(ctx context.Context, f *backend.ForgetRequest) error {
	var buffer [tiers.MaxTiers]group
	groups := groupsOf(buffer[:0], f.Ladder)
	mark := markName(f.Key)
	step := func(keys []string, leaf, from uint64) (next uint64, err error) {
		p := make(program, 0, 32)
		p.uint(labelBits(f.Latest()), 8)
		p.ms(max(f.Remember, time.Millisecond))
		p.uint(leaf, 2)
		p.uint(from, 6)
		reply, err := s.run(ctx, f.Deadline, forgetScript, keys, p)
		if err != nil {
			return 0, err
		}
		n, is := reply.(int64)
		if !is || n < 0 {
			return 0, s.odd(reply)
		}
		return uint64(n), nil
	}
	for _, g := range groups {
		keys := []string{g.rootName(f.Key), mark}
		from, err := step(keys, g.leafPositions(), 0)
		for err == nil && from > 0 {
			from, err = step(keys, g.leafPositions(), from)
		}
		if err != nil {
			return err
		}
	}
	_, err := step([]string{mark}, 0, 0) // what came while the last step was under way
	return err
}

// Forgotten reads the mark of the key.
func (s *Store) Forgotten(ctx context.Context, key string, _, deadline time.Time) (label int64, err error) {
	ctx, cancel, err := s.start(ctx, deadline)
	if err != nil {
		return 0, err
	}
	defer cancel()
	v, err := s.server.Client().Get(ctx, markName(key)).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return 0, nil
	case err != nil:
		return 0, s.server.Failed(ctx, err)
	case len(v) != 8:
		return 0, s.foreign()
	}
	return int64(number(v) ^ 1<<63), nil
}

// labelBits is a label as a number that is the greater the later it is, also
// before 1970.
func labelBits(label int64) uint64 { return uint64(label) ^ 1<<63 }

// markName is where it is remembered when a key was forgotten: on the server of the
// key, under a name that does not show the feature. It has a hash tag of its own,
// which is the key's prefix, "!", and four bytes that bring the tag into the key's
// slot; a digest of the key follows. An ACL that is about the prefix covers it.
func markName(key string) string {
	prefix := key[:strings.IndexByte(key, ':')+1]
	tag := prefix + "!"
	// CRC is linear: that of tag and four bytes is that of tag and four zero
	// bytes, xor that of the four bytes alone.
	want := crc16(0, key) ^ crc16(crc16(0, tag), "\x00\x00\x00\x00")
	digest := sha256.Sum256([]byte(key))
	fill := fills()[want%slots]
	return "{" + tag + string(fill[:]) + "}" + base64.RawURLEncoding.EncodeToString(digest[:])
}

// fills are four letters or digits for each CRC modulo the number of slots.
var fills = sync.OnceValue(func() *[slots][4]byte {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyz"
	all := new([slots][4]byte)
	for i, found := 0, 0; found < slots; i++ {
		var fill [4]byte
		for j, n := 0, i; j < len(fill); j, n = j+1, n/len(letters) {
			fill[j] = letters[n%len(letters)]
		}
		if at := &all[crc16(0, fill[:])%slots]; at[0] == 0 {
			*at = fill
			found++
		}
	}
	return all
})
