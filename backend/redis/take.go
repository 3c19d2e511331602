package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/redisscript"
	"github.com/abacus-go/abacus/tiers"
)

// maxWindows is the most windows of a key: so many take a server about ten
// milliseconds, and no other client gets an answer meanwhile.
const maxWindows = 1000

// takePart is a root of a step: a group of tiers of a key, with the windows whose
// finest tier is the finest of the group.
type takePart struct {
	group
	key *backend.TakeKey
}

// Take does an atomic step, by a single FCALL.
func (s *sums) Take(ctx context.Context, req *backend.TakeRequest) error {
	var buffer [4]takePart
	parts := buffer[:0]
	for i := range req.Keys {
		var groups [tiers.MaxTiers]group
		for _, g := range groupsOf(groups[:0], req.Keys[i].Ladder) {
			parts = append(parts, takePart{g, &req.Keys[i]})
		}
	}
	keys := make([]string, len(parts))
	exact := req.Exact || req.Times > 1
	for i := range req.Keys {
		exact = exact || s.denied.has(req.Keys[i].Key)
	}
	r, err := encodeTake(req, exact, parts, keys)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	unknown := !req.Peek && !exact && len(parts) == 1 && parts[0].fitsAlone() && !s.known.has(parts[0].key.Key)
	if unknown && s.missing.Load() {
		r[optionsAt] |= missingOption
	}
	program := scripts().take
	if req.Peek {
		program = scripts().peek
	}
	got, err := s.ask(ctx, req.Deadline, latest(req.Labelled, parts), program, keys, r)
	if err != nil {
		return err
	}
	req.Taken = 1 // unless the answer says how often
	switch reply := got.(type) {
	case int64:
		err = s.decodeCounts(req, parts, []any{reply})
	case []any: // the last is the time
		err = s.decodeCounts(req, parts, reply[:max(0, len(reply)-1)])
	case string:
		err = s.decodeTake(req, parts, reply)
	default:
		err = s.unexpected(got)
	}
	if err != nil || req.Peek {
		return err
	}
	for i := range req.Keys {
		s.denied.note(req.Keys[i].Key, !req.Keys[i].Fits)
	}
	if unknown {
		key := parts[0].key
		s.known.note(key.Key, true)
		s.missing.Store(!slices.ContainsFunc(key.Windows, func(w backend.Window) bool { return w.Count > 0 }))
	}
	return nil
}

// latest returns the time by which a step must be made: until then no root has expired
// that the label needs. The zero time: not known.
func latest(labelled time.Time, parts []takePart) time.Time {
	if labelled.IsZero() {
		return labelled
	}
	late := maxLate
	for i := range parts {
		late = min(late, parts[i].late())
	}
	return labelled.Add(late)
}

// maxFirst is the most hits of a first bucket in a sum of two bytes.
const maxFirst = 1<<16 - 1

// fitsAlone reports whether the hits of a part have room where none have been counted.
func (p *takePart) fitsAlone() bool {
	return 0 < p.key.N && p.key.N <= maxFirst &&
		!slices.ContainsFunc(p.key.Windows, func(w backend.Window) bool { return w.Max < p.key.N })
}

// Together reports whether a single server, or of a Cluster a single slot, holds all
// keys.
func (s *sums) Together(keys []backend.TakeKey) bool {
	if s.server.Cluster() == nil || len(keys) == 0 {
		return true
	}
	first := redisscript.Slot(keys[0].Key)
	return !slices.ContainsFunc(keys[1:], func(k backend.TakeKey) bool { return redisscript.Slot(k.Key) != first })
}

// encodeTake returns the request, with exact counts if exact is set, and fills in the stored keys of parts.
func encodeTake(req *backend.TakeRequest, exact bool, parts []takePart, keys []string) (request, error) {
	now := req.Now.UnixNano()
	r := make(request, 0, requestHead+len(parts)*30+len(req.Keys)*4*13)
	mode := byte(modeCount)
	if req.Peek {
		mode = modePeek
	}
	r.begin(mode, req.AnyLabel, exact)
	for i := range parts {
		p := &parts[i]
		ttl := p.key.TTLs[p.last]
		if err := p.fits(ttl); err != nil {
			return nil, err
		}
		var flags uint64
		if p.number > 0 {
			flags |= sameKey
		}
		if p.key.Soft {
			flags |= softKey
		}
		keys[i] = p.rootName(string(p.key.Key))
		r.index(tiers.Index(now, p.width))
		r.index(p.stale(now, ttl))
		r.ms(p.ttl(ttl))
		r.uint(uint64(p.key.N), 7)
		r.uint(p.leafPositions(), 2)
		r.uint(flags, 1)
		count, windows := len(r), 0
		r.uint(0, 2)
		p.windows(func(w *backend.Window) {
			r.index(tiers.Index(now-int64(w.Reach), p.width))
			r.uint(uint64(w.Max), 7)
			windows++
		})
		if windows > maxWindows {
			return nil, fmt.Errorf("%d limits of one key, want at most %d", windows, maxWindows)
		}
		r[count], r[count+1] = byte(windows>>8), byte(windows)
	}
	if req.Times > 1 && !req.Peek {
		r[optionsAt] |= timesOption
		r.uint(uint64(req.Times), timesBytes)
	}
	return r, nil
}

// windows calls f with the windows of p.
func (p *takePart) windows(f func(*backend.Window)) {
	for j := range p.key.Windows {
		if w := &p.key.Windows[j]; w.Finest == p.first {
			f(w)
		}
	}
}

// decodeTake fills req in from the answer of the script.
func (s *sums) decodeTake(req *backend.TakeRequest, parts []takePart, reply string) error {
	rest := answer{left: reply}
	first := rest.next(1)
	allowed := first == addedByte || first == partByte || first == timesByte
	if first == timesByte {
		req.Taken = int64(rest.next(timesBytes))
	}
	for i := range parts {
		p := &parts[i]
		p.key.Fits = true
		p.windows(func(w *backend.Window) { w.Count = int64(rest.next(sumBytes)) })
	}
	for i := range parts {
		p := &parts[i]
		p.windows(func(w *backend.Window) {
			if w.FreedBy = (tiers.Bucket{}); w.Count > w.Max-p.key.N {
				p.key.Fits, w.FreedBy = false, p.bucket(rest.next(wholeBytes))
			}
		})
	}
	for i := range parts {
		p := &parts[i]
		added := allowed && !req.Peek && p.key.Fits && p.key.N > 0
		newest := p.bucket(rest.next(wholeBytes))
		p.windows(func(w *backend.Window) {
			if w.Newest = (tiers.Bucket{}); w.Count > 0 || added {
				w.Newest = newest
			}
		})
	}
	if allowed && !req.Peek {
		rest.next(timeBytes)
	}
	if rest.short || len(rest.left) > 0 {
		return fmt.Errorf("%s: an unexpected answer of %d bytes", s, len(reply))
	}
	req.Allowed = allowed
	return nil
}

// decodeCounts fills req in from the counts of all windows, where hits were added to the
// newest bucket of each key, which is the label's.
func (s *sums) decodeCounts(req *backend.TakeRequest, parts []takePart, counts []any) error {
	valid := true
	for i := range parts {
		p := &parts[i]
		newest := tiers.Bucket{Width: p.width, Index: tiers.Index(req.Now.UnixNano(), p.width)}
		p.windows(func(w *backend.Window) {
			if valid = valid && len(counts) > 0; valid {
				w.Count, valid = counts[0].(int64)
				w.FreedBy, w.Newest, counts = tiers.Bucket{}, newest, counts[1:]
			}
		})
		p.key.Fits = true
	}
	if req.Allowed = true; !valid || len(counts) > 0 {
		return s.unexpected(counts)
	}
	return nil
}

// bucket is the bucket at a position of an answer; the zero Bucket at 0.
func (g group) bucket(position uint64) tiers.Bucket {
	if position == 0 {
		return tiers.Bucket{}
	}
	return tiers.Bucket{Width: g.width, Index: bucketAt(position)}
}
