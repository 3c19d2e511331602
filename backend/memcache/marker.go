package memcache

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	gomemcache "github.com/bradfitz/gomemcache/memcache"
	"github.com/cespare/xxhash/v2"

	"github.com/abacus-go/abacus/backend"
)

// A marker is an item that remembers the label of a Forget. Its name is
//
//	placement digest|forgotten      without the space
//
// placement is the hash of the key, in 16 hexadecimal digits, by which servers
// are chosen: a selector finds the server of the key without the key. digest is
// the SHA-256 of the key, in base64. Names of buckets end in a digit, so no
// bucket has the name of a marker. The value is the label, a space, and the
// second since 1970 until which the label is remembered.
const (
	markerSuffix  = "forgotten"
	placementSize = 16
)

func markerName(key string) string {
	var placement [8]byte
	binary.BigEndian.PutUint64(placement[:], xxhash.Sum64String(key))
	digest := sha256.Sum256([]byte(key))
	return hex.EncodeToString(placement[:]) + base64.RawURLEncoding.EncodeToString(digest[:]) + string(separator) + markerSuffix
}

// placementOf returns the hash by which the server of an item is chosen: the
// hash of the item's key.
func placementOf(item string) uint64 {
	i := strings.LastIndexByte(item, separator)
	if i < 0 {
		return xxhash.Sum64String(item)
	}
	if item[i+1:] == markerSuffix && i >= placementSize {
		if hash, err := strconv.ParseUint(item[:placementSize], 16, 64); err == nil {
			return hash
		}
	}
	return xxhash.Sum64String(item[:i])
}

type marker struct {
	label int64     // nanoseconds since 1970
	until time.Time // by the clock of this machine, to the second
}

func (m marker) value() []byte {
	return strconv.AppendInt(append(strconv.AppendInt(nil, m.label, 10), ' '), m.until.Unix(), 10)
}

func parseMarker(value []byte) (m marker, err error) {
	label, until, ok := strings.Cut(string(value), " ")
	seconds, err := strconv.ParseInt(until, 10, 64)
	if ok && err == nil {
		m.until = time.Unix(seconds, 0)
		m.label, err = strconv.ParseInt(label, 10, 64)
	}
	if !ok || err != nil {
		return marker{}, fmt.Errorf("holds %.60q, want a label and a second", value)
	}
	return m, nil
}

// maxMarkerSteps bounds the changes by other callers while a marker is written.
const maxMarkerSteps = 100

// remember writes the marker m. An existing marker keeps the newer label and
// the longer time of the two. After an error, remember may be repeated.
func (c *call) remember(l *link, name string, m marker) error {
	if err := l.ready(); err != nil {
		return c.failed("get", err)
	}
	for range maxMarkerSteps {
		now := time.Now()
		held, err := l.client.Get(name)
		if err != nil && err != gomemcache.ErrCacheMiss {
			return c.failed("get", err)
		}
		newer, verb := m, "add"
		if held != nil {
			was, err := parseMarker(held.Value)
			if err != nil {
				return c.failed("get marker", err)
			}
			if was.label >= m.label && !was.until.Before(m.until) {
				return nil
			}
			newer, verb = marker{max(was.label, m.label), later(was.until, m.until)}, "cas"
		}
		item := &gomemcache.Item{Key: name, Value: newer.value()}
		if item.Expiration, err = expiration(newer.until.Sub(now), now); err != nil {
			return err
		}
		if held == nil {
			err = l.client.Add(item)
		} else {
			item.CasID = held.CasID
			err = l.client.CompareAndSwap(item)
		}
		switch err {
		case nil:
			return nil
		case gomemcache.ErrNotStored, gomemcache.ErrCASConflict, gomemcache.ErrCacheMiss:
			continue
		}
		return c.failed(verb, err)
	}
	return c.failed("cas marker", fmt.Errorf("other callers changed the marker %d times", maxMarkerSteps))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Forgotten is described in [backend.Store].
func (s *Store) Forgotten(ctx context.Context, r *backend.ForgetRequest) (int64, error) {
	if err := checkKey(r.Key); err != nil {
		return 0, err
	}
	name, found := markerName(r.Key), make(chan int64, 1)
	err := s.step(ctx, r.Deadline, s.peerOf(r.Key), 1, func(c *call, l *link, _ int) error {
		if err := l.ready(); err != nil {
			return c.failed("get", err)
		}
		item, err := l.client.Get(name)
		if errors.Is(err, gomemcache.ErrCacheMiss) {
			found <- 0
			return nil
		}
		if err != nil {
			return c.failed("get", err)
		}
		m, err := parseMarker(item.Value)
		if err != nil {
			return c.failed("get marker", err)
		}
		found <- m.label
		return nil
	})
	if err != nil {
		return 0, err
	}
	return <-found, nil
}
