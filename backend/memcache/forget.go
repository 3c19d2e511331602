package memcache

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
	"github.com/abacus-go/abacus/tiers"
)

// Forget is described in [backend.Store]. Items are searched in the coarsest tier
// first, and in a finer tier only inside coarser buckets with an item, even an item
// with count 0. Then tiers are emptied, finest first and oldest bucket first, so
// that a second Forget finds the items left by a first. The label is remembered at
// the start and at the end.
//
// An item that has not changed since the search is removed in one step. From other
// items the count found is taken: a hit from in between stays in the tiers that were
// searched before it came, the coarser ones, and leads the next Forget to it. A Forget
// creates no item but a marker. An Erase searches each tier for all items that
// may live, and deletes every item, whatever the value. Without f.Deadline each
// step, of a thousand items, may last for the timeout of the store.
func (s *Store) Forget(ctx context.Context, f *backend.ForgetRequest) error {
	if err := item.CheckKey(f.Key); err != nil {
		return err
	}
	if len(f.TTLs) != f.Ladder.Len() {
		return fmt.Errorf("memcache: ForgetRequest.TTLs has %d entries, want %d, one for each tier", len(f.TTLs), f.Ladder.Len())
	}
	a := asking{ctx: ctx, deadline: f.Deadline, t: s.transportOf(f.Key), key: f.Key}
	remember := func() error {
		return a.remember(markerName(f.Key), marker{f.Latest(), time.Now().Add(f.Remember + time.Second).Unix()})
	}
	if err := remember(); err != nil {
		return err
	}
	on := map[string]*transport{"": a.t}
	if f.Erase {
		on = s.transports // before a change of the servers another one may have been the key's
	}
	for _, t := range on {
		there := a
		there.t = t
		if err := there.empty(f, f.Ladder.Len()-1, nil); err != nil {
			return err
		}
	}
	return remember()
}

// empty empties tier i and the finer tiers of the key on a server, or erases their
// items. held are the buckets of the next coarser tier with an item.
func (a asking) empty(f *backend.ForgetRequest, i int, held []int64) error {
	empty, buckets := a.expire, search(f, i, held)
	if f.Erase {
		empty = a.remove
	}
	if i == 0 { // searched while emptied
		return a.visit(f, i, buckets, empty)
	}
	var items []kept
	err := a.visit(f, i, buckets, func(some []kept) error { items = append(items, some...); return nil })
	held = nil
	for _, it := range items {
		held = append(held, it.bucket.Index)
	}
	if err == nil {
		err = a.empty(f, i-1, slices.Compact(slices.Sorted(slices.Values(held))))
	}
	for some := range slices.Chunk(items, chunkSize) {
		if err == nil {
			err = empty(some)
		}
	}
	return err
}

// search returns the buckets of tier i that may have an item: those inside the
// coarser buckets with an item, even if they are older than the tier's Keep, since
// the life of an item begins at its creation, whatever the label. In the coarsest
// tier all buckets that a caller may have hit, and for an Erase all whose items may
// live, whatever the coarser tier has: the life of the coarser item may have ended a
// little earlier, or its addition may have failed.
func search(f *backend.ForgetRequest, i int, coarser []int64) iter.Seq[int64] {
	tier, ttl := f.Ladder.At(i), f.TTLs[i]
	return func(yield func(int64) bool) {
		for _, index := range coarser {
			ratio := int64(f.Ladder.At(i+1).Width / tier.Width)
			for fine := index * ratio; fine < (index+1)*ratio; fine++ {
				if !yield(fine) {
					return
				}
			}
		}
		back := ttl
		if f.Erase {
			// An item may be created by a late call, up to a standstill after the end of
			// its bucket, and lives for the slack of its expiry after its TTL.
			back += tier.Width + item.Standstill + item.Slack(ttl) + time.Second
		} else if i < f.Ladder.Len()-1 {
			return
		}
		last := tiers.Index(f.Now.UnixNano()+int64(ttl-tier.Keep+time.Minute), tier.Width) // a caller's clock may be ahead
		for index := tiers.Index(f.Now.UnixNano()-int64(back), tier.Width); index <= last; index++ {
			if !yield(index) {
				return
			}
		}
	}
}

// visit reads the items of some buckets of tier i, and calls do with those that
// exist, at most a thousand at a time and in the order of their buckets.
func (a asking) visit(f *backend.ForgetRequest, i int, buckets iter.Seq[int64], do func([]kept) error) error {
	width := f.Ladder.At(i).Width
	if err := item.CheckWidth(width); err != nil {
		return err
	}
	stem := string(item.AppendStem(nil, f.Key, width))
	var some []int64
	read := func() error {
		if len(some) == 0 {
			return nil
		}
		command := []byte("gets")
		for _, index := range some {
			command = strconv.AppendInt(append(append(command, ' '), stem...), index, 10)
		}
		some = some[:0]
		found, err := a.read("get", string(command))
		if err != nil || len(found) == 0 {
			return err
		}
		items := make([]kept, len(found))
		for i, it := range found {
			text, is := strings.CutPrefix(it.name, stem)
			index, err := strconv.ParseInt(text, 10, 64)
			if !is || err != nil {
				return a.t.failed("get", errNotAsked)
			}
			items[i] = kept{it, tiers.Bucket{Width: width, Index: index}}
		}
		slices.SortFunc(items, func(a, b kept) int { return cmp.Compare(a.bucket.Index, b.bucket.Index) }) // a proxy may change the order
		return do(items)
	}
	for index := range buckets {
		if some = append(some, index); len(some) == chunkSize {
			if err := read(); err != nil {
				return err
			}
		}
	}
	return read()
}

// kept is an item of a bucket.
type kept struct {
	found
	bucket tiers.Bucket
}

// remove deletes items, whatever they hold.
func (a asking) remove(items []kept) error {
	var commands []byte
	for _, it := range items {
		commands = append(append(append(commands, "delete "...), it.name...), "\r\n"...)
	}
	lines, _, err := a.ask("delete", commands, len(items))
	for _, line := range lines {
		if err == nil && line != "DELETED" && line != "NOT_FOUND" {
			err = a.t.failed("delete", unexpected(line))
		}
	}
	return err
}

// inThePast is a time to live that memcached reads as a date, in January 1970. A
// negative one means the same, and twemproxy hangs up on it.
const inThePast = 30*24*60*60 + 1

// expire removes items as they were read. A cas with a time to live in the past
// deletes a known value; the delete of memcached deletes any value.
func (a asking) expire(items []kept) error {
	var commands []byte
	for _, it := range items {
		if _, err := item.Count(it.value); err != nil {
			return a.t.failedItem("get", it.name, err)
		}
		commands = fmt.Appendf(commands, "cas %s 0 %d 1 %s\r\n0\r\n", it.name, inThePast, it.cas)
	}
	lines, _, err := a.ask("cas", commands, len(items))
	if err != nil {
		return err
	}
	for i, line := range lines {
		switch line {
		case "STORED", "NOT_FOUND", "NOT_STORED":
			continue
		}
		if line != "EXISTS" && !noRoom(line) {
			return a.t.failed("cas", unexpected(line))
		}
		// The item has changed, or the server has no room even for an empty value:
		// take the count read, and leave later hits.
		deadline, err := a.t.store.begin(a.ctx, a.deadline)
		if count, _ := item.Count(items[i].value); count > 0 && err == nil {
			err = a.t.do(a.ctx, undoOf(a.key, count, items[i].bucket), deadline, 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
