package memcache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
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
	return hex.EncodeToString(placement[:]) + base64.RawURLEncoding.EncodeToString(digest[:]) + string(item.Separator) + markerSuffix
}

// placementOf returns the hash by which the server of an item is chosen: the
// hash of the item's key.
func placementOf(name string) uint64 {
	i := strings.LastIndexByte(name, item.Separator)
	if i < 0 {
		return xxhash.Sum64String(name)
	}
	if name[i+1:] == markerSuffix && i >= placementSize {
		if hash, err := strconv.ParseUint(name[:placementSize], 16, 64); err == nil {
			return hash
		}
	}
	return xxhash.Sum64String(name[:i])
}

type marker struct {
	label int64 // nanoseconds since 1970
	until int64 // seconds since 1970, by the clock of this machine
}

func (m marker) value() []byte { return fmt.Appendf(nil, "%d %d", m.label, m.until) }

func parseMarker(value []byte) (m marker, err error) {
	if _, err := fmt.Sscan(string(value), &m.label, &m.until); err != nil || !bytes.Equal(m.value(), value) {
		return marker{}, fmt.Errorf("holds %.60q, want a label and a second", value)
	}
	return m, nil
}

// maxMarkerSteps bounds the changes by other callers while a marker is written.
const maxMarkerSteps = 100

// remember writes the marker m. An existing marker keeps the newer label and
// the longer time of the two. After an error, remember may be repeated.
func (a asking) remember(name string, m marker) error {
	for range maxMarkerSteps {
		was, cas, err := a.marker(name)
		if err != nil {
			return err
		}
		if cas != "" && was.label >= m.label && was.until >= m.until {
			return nil
		}
		now, newer, verb := time.Now(), m, "add"
		if cas != "" {
			newer, verb = marker{max(was.label, m.label), max(was.until, m.until)}, "cas"
		}
		expiry, err := item.Expiry(time.Unix(newer.until, 0).Sub(now), now)
		if err != nil {
			return err
		}
		value := newer.value()
		command := fmt.Appendf(nil, "%s %s 0 %d %d", verb, name, expiry, len(value))
		if cas != "" {
			command = append(append(command, ' '), cas...)
		}
		lines, _, err := a.ask(verb, fmt.Appendf(command, "\r\n%s\r\n", value), 1)
		if err != nil {
			return err
		}
		switch lines[0] {
		case "STORED":
			return nil
		case "NOT_STORED", "EXISTS", "NOT_FOUND": // another caller was faster
		default:
			return a.t.failed(verb, unexpected(lines[0]))
		}
	}
	return a.t.failed("cas marker", fmt.Errorf("other callers changed the marker %d times", maxMarkerSteps))
}

// marker reads a marker; without one cas is "".
func (a asking) marker(name string) (m marker, cas string, err error) {
	found, err := a.read("get", "gets "+name)
	if err != nil || len(found) == 0 {
		return marker{}, "", err
	}
	if found[0].name != name {
		return marker{}, "", a.t.failed("get", errNotAsked)
	}
	if m, err = parseMarker(found[0].value); err != nil {
		return marker{}, "", a.t.failed("get marker", err)
	}
	return m, found[0].cas, nil
}

// Forgotten is described in [backend.Store].
func (s *Store) Forgotten(ctx context.Context, r *backend.ForgetRequest) (int64, error) {
	if err := item.CheckKey(r.Key); err != nil {
		return 0, err
	}
	m, _, err := asking{ctx: ctx, deadline: r.Deadline, t: s.transportOf(r.Key)}.marker(markerName(r.Key))
	return m.label, err
}
