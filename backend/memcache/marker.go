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
)

// A mark is the item that remembers when a key was forgotten. Its name is
//
//	placement digest|forgotten      without the space
//
// placement is the hash of the key by which servers are chosen, in 16
// hexadecimal digits, so that a selector finds the key's server without the
// key; digest is the SHA-256 of the key, in base64. No bucket's item ends like
// that: those end in a digit. The value is the label and the second, since 1970,
// up to which it is to be remembered.
const (
	markEnd       = "forgotten"
	placementSize = 16
)

func markName(key string) string {
	var placement [8]byte
	binary.BigEndian.PutUint64(placement[:], xxhash.Sum64String(key))
	digest := sha256.Sum256([]byte(key))
	return hex.EncodeToString(placement[:]) + base64.RawURLEncoding.EncodeToString(digest[:]) + string(separator) + markEnd
}

// placementOf is the hash by which the server of an item is chosen: that of the
// key it belongs to.
func placementOf(item string) uint64 {
	i := strings.LastIndexByte(item, separator)
	if i < 0 {
		return xxhash.Sum64String(item)
	}
	if item[i+1:] == markEnd && i >= placementSize {
		if hash, err := strconv.ParseUint(item[:placementSize], 16, 64); err == nil {
			return hash
		}
	}
	return xxhash.Sum64String(item[:i])
}

type mark struct {
	label int64     // nanoseconds since 1970
	until time.Time // on this machine's clock, to the second
}

func (m mark) value() []byte {
	return strconv.AppendInt(append(strconv.AppendInt(nil, m.label, 10), ' '), m.until.Unix(), 10)
}

func parseMark(value []byte) (m mark, err error) {
	label, until, ok := strings.Cut(string(value), " ")
	seconds, err := strconv.ParseInt(until, 10, 64)
	if ok && err == nil {
		m.until = time.Unix(seconds, 0)
		m.label, err = strconv.ParseInt(label, 10, 64)
	}
	if !ok || err != nil {
		return mark{}, fmt.Errorf("holds %.60q, which is no label", value)
	}
	return m, nil
}

// maxMarkSteps is how many times others may change a mark while one is made.
const maxMarkSteps = 100

// remember makes the mark m, or makes the one that is there newer and longer by
// it, or leaves it. Whatever has happened after an error, it may be done again.
func (c *call) remember(l *link, name string, m mark) error {
	if err := l.ready(); err != nil {
		return c.failed("get", err)
	}
	for range maxMarkSteps {
		now := time.Now()
		held, err := l.client.Get(name)
		if err != nil && err != gomemcache.ErrCacheMiss {
			return c.failed("get", err)
		}
		newer, verb := m, "add"
		if held != nil {
			was, err := parseMark(held.Value)
			if err != nil {
				return c.failed("get mark", err)
			}
			if was.label >= m.label && !was.until.Before(m.until) {
				return nil
			}
			newer, verb = mark{max(was.label, m.label), later(was.until, m.until)}, "cas"
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
	return c.failed("cas mark", fmt.Errorf("others changed it %d times", maxMarkSteps))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Forgotten is described in [backend.Forgetter].
func (s *Store) Forgotten(ctx context.Context, key string, _, deadline time.Time) (int64, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	name, found := markName(key), make(chan int64, 1)
	err := s.step(ctx, deadline, key, 1, func(c *call, l *link, _ int) error {
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
		m, err := parseMark(item.Value)
		if err != nil {
			return c.failed("get mark", err)
		}
		found <- m.label
		return nil
	})
	if err != nil {
		return 0, err
	}
	return <-found, nil
}
