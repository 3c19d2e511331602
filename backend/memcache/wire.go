package memcache

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
)

// The commands of an exchange, all in one write, in the two dialects:
//
//	ma NAME v N<ttl> J<n> D<n> O<tag>   adds n, or creates the item with n
//	ma NAME v MD D<n> O<tag>            takes n from the item, if there is one
//	get NAME NAME ...                   reads, up to chunkSize items
//	ma |abacus D0 O<tag>                ends reads that have no other proof, and changes nothing
//
//	add NAME 0 <ttl> 1, 0, incr NAME n  adds n, after creating the item if there is none
//	decr NAME n                         takes n from the item, if there is one
//	get NAME NAME ...
//
// The answers come in the order of the commands:
//
//	VA <size> O<tag> and a line with the count; NF O<tag> without an item
//	VALUE NAME <flags> <size> and a line with the count, for each item; END
//	NF O<tag>
//
//	STORED or NOT_STORED, and the count; the count, or NOT_FOUND
//
// A tag is used once in a process, so the answer to another command is noticed. An
// END has no tag, and would mean zero for all items. So reads must have an item that
// was added to just before, or a command with a tag behind them, which costs the
// server a system call: memcached writes after each multi-get. The classic multi-get
// costs the server half of the meta command mg. A line or a value beyond the bounds
// closes the connection.
const (
	maxLine  = 512
	maxValue = 1024
	maxItem  = 1 << 20 // bytes of a value that no caller of this package wrote, and that is passed over

	// maxFound bounds the items and statistics in an answer to plain commands.
	maxFound = 10_000
)

var (
	// errMissing is the error of reads that do not know of the addition before them.
	errMissing = errors.New("answered without an item that had just been added to")

	errNotAsked = errors.New("answered with an item that was not asked for")
)

// exchange is a Do on a pipeline, or some plain commands: a request, and the
// answers. An exchange has copies of the request, since answers may come after the
// return of Do.
type exchange struct {
	pool    *sync.Pool // of the Store
	dialect *dialect
	key     string
	n       int64
	adds    []addition
	reads   reads
	plain   int    // commands whose answers are not understood here
	verb    string // of the additions or plain commands, in errors
	request []byte // the commands
	tag     uint64 // of the first addition; the others follow, and the end of the reads

	// Of the goroutine that reads the answers, until the state is finished.
	answered int      // additions that have an answer
	created  bool     // and the next one has half of it
	chunks   int      // multi-gets without their END
	skip     int      // bytes of a long value that are to be passed over
	open     bool     // the answer behind the reads is to come
	must     int      // the count whose item must come; below zero: none
	at       int      // the first count that the next item can belong to
	lines    []string // the last lines of the answers to the plain commands
	found    []found  // in these answers
	readErr  error    // of the first multi-get or item that failed
	readVerb string   // "get bucket 1m29454210"
	err      error    // the connection failed

	state   atomic.Int32
	wake    chan struct{} // a signal: the exchange is finished, or the caller is to read
	timer   *time.Timer
	spoiled bool   // a signal may still come: not to be used again
	sentAt  uint64 // answers of the pipeline when the exchange was queued
	gate    gate   // of which a token is held, nil if none is; under the lock of the pipeline once queued
	late    bool   // undoes late additions
}

// addition is a [backend.Slot] in an exchange.
type addition struct {
	from, to int   // the name in the request
	count    int64 // the Count of the Slot
	made     bool  // n was added, for certain
	noRoom   bool  // nothing was changed, since the server has no room
	gone     bool  // nothing was changed, since the item was gone
	err      error
}

// found is an item, or a statistic, in the answer to a plain command.
type found struct {
	name  string
	value []byte
	cas   string // the last field of the item
}

// States of an exchange.
const (
	waiting   = iota // the caller waits
	finished         // answered, or failed: the exchange is the caller's
	abandoned        // the caller has returned: the exchange is the pipeline's
)

// tags counts the tags given to additions.
var tags atomic.Uint64

// newExchanges returns a pool of exchanges. Each Store has a pool of its own: timers
// and channels made in a bubble of testing/synctest cannot leave the bubble.
func newExchanges() *sync.Pool {
	pool := new(sync.Pool)
	pool.New = func() any {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return &exchange{pool: pool, wake: make(chan struct{}, 1), timer: timer}
	}
	return pool
}

// recycle gives back an exchange whose answers have all come, or that was not
// sent.
func (x *exchange) recycle() {
	if !x.spoiled && x.err == nil {
		x.gate = nil
		x.reset()
		x.pool.Put(x)
	}
}

// reset empties x, but for its gate.
func (x *exchange) reset() {
	clear(x.adds)
	*x = exchange{adds: x.adds[:0], reads: reads{runs: x.reads.runs[:0], counts: x.reads.counts[:0]}, request: x.request[:0],
		pool: x.pool, wake: x.wake, timer: x.timer, gate: x.gate}
}

// begin begins a request with some additions of n.
func (x *exchange) begin(d *dialect, n int64, additions int) {
	if x.dialect != nil {
		x.reset() // it was written in the other dialect
	}
	if x.verb = d.verb; n < 0 {
		x.verb = d.undo
	}
	x.dialect, x.n, x.tag = d, n, tags.Add(uint64(additions)+1)-uint64(additions)-1
}

// encode writes the commands of op. ordered says that reads are executed after
// additions.
func (x *exchange) encode(d *dialect, op *backend.Request, ordered bool) error {
	x.begin(d, op.N, len(op.Add))
	x.key = op.Key
	now := time.Now()
	for i := range op.Add {
		slot, ttl := &op.Add[i], int32(0)
		if op.N > 0 {
			var err error
			if ttl, err = item.Expiry(op.Life(slot), now); err != nil {
				return err
			}
		}
		from := x.word()
		x.request = item.AppendName(x.request, op.Key, slot.Bucket)
		x.add(from, ttl)
	}
	if x.reads.set(op); len(x.reads.counts) == 0 {
		return nil
	}
	x.get()
	x.must = -1
	for i := 0; i < len(op.Add) && op.N > 0 && ordered && d.tagged; i++ {
		x.must = max(x.must, x.reads.index(op.Add[i].Bucket))
	}
	if x.must < chunkSize*(x.chunks-1) { // also if the last multi-get has no such item
		x.end()
	}
	return nil
}

// word begins an addition to an item, or its undoing. The name is to follow, at the
// end of the request.
func (x *exchange) word() (from int) {
	word := x.dialect.addWord
	if x.n < 0 {
		word = x.dialect.undoWord
	}
	x.request = append(x.request, word...)
	return len(x.request)
}

// add completes an addition to an item whose name begins at from.
func (x *exchange) add(from int, ttl int32) {
	tag := x.tag + uint64(len(x.adds))
	x.adds = append(x.adds, addition{from: from, to: len(x.request)})
	if x.n > 0 {
		x.request = x.dialect.appendAdd(x.request, from, x.n, ttl, tag)
	} else {
		x.request = x.dialect.appendUndo(x.request, -x.n, tag)
	}
}

// get writes the multi-gets of the reads.
func (x *exchange) get() {
	var buf [item.MaxName]byte
	size := chunkSize
	for _, run := range x.reads.runs {
		stem := item.AppendStem(append(buf[:0], ' '), x.key, run.Width)
		for i := range run.N {
			if size == chunkSize {
				if x.chunks > 0 {
					x.request = append(x.request, "\r\n"...)
				}
				x.request, size = append(x.request, "get"...), 0
				x.chunks++
			}
			x.request = strconv.AppendInt(append(x.request, stem...), run.First+i, 10)
			size++
		}
	}
	x.request = append(x.request, "\r\n"...)
}

// end writes the command that proves where the answers end, in a dialect that has
// one.
func (x *exchange) end() {
	if x.open = x.dialect.tagged; x.open {
		x.request = append(append(x.request, x.dialect.question...), ' ')
		x.request = append(appendTag(x.request, x.tag+uint64(len(x.adds))), "\r\n"...)
	}
}

// takingBack makes x the request that undoes n hits of items; no one waits for it.
func (x *exchange) takingBack(d *dialect, names []string, n int64) {
	x.begin(d, -n, len(names))
	for _, name := range names {
		from := x.word()
		x.request = append(x.request, name...)
		x.add(from, 0)
	}
}

// ask makes x a request of some commands, each with an answer of its own.
func (x *exchange) ask(d *dialect, verb string, commands []byte, number int) {
	x.begin(d, 0, 0)
	x.verb, x.plain = verb, number
	x.request = append(x.request, commands...)
	x.end()
}

// name returns the name of the item of addition i.
func (x *exchange) name(i int) string { return string(x.request[x.adds[i].from:x.adds[i].to]) }

// parse reads the answers at the start of in, as far as these have come, and
// returns their length. After an error the connection cannot be used any more.
func (x *exchange) parse(in []byte) (n int, complete bool, err error) {
	for x.answered < len(x.adds) || x.chunks > 0 || x.plain > 0 || x.open || x.skip > 0 {
		if x.skip > 0 {
			skipped := min(x.skip, len(in)-n)
			if n, x.skip = n+skipped, x.skip-skipped; x.skip > 0 {
				return n, false, nil
			}
			if end := "\r\n"[max(0, 2-n):]; !bytes.HasSuffix(in[:n], []byte(end)) {
				return n, false, unexpected("a value that is longer than it says")
			}
			continue
		}
		end := bytes.IndexByte(in[n:], '\n') // of the line
		if end > maxLine || end < 0 && len(in)-n > maxLine {
			return n, false, fmt.Errorf("a line of more than %d bytes", maxLine)
		}
		if end < 0 {
			return n, false, nil
		}
		line, ok := bytes.CutSuffix(in[n:n+end], []byte("\r"))
		size, rest := 0, in[n+end+1:]
		switch {
		case !ok:
		case x.answered < len(x.adds):
			size, ok, err = x.dialect.parse(x, line, rest)
		case x.chunks > 0:
			size, ok, err = x.parseItem(line, rest)
		case x.plain > 0:
			size, ok = x.parsePlain(line, rest)
		default:
			ok = x.parseEnd(line)
		}
		if !ok && err == nil {
			err = unexpected(line)
		}
		if err != nil || size < 0 {
			return n, false, err
		}
		n += end + 1 + size
	}
	return n, true, nil
}

func unexpected[T string | []byte](line T) error { return fmt.Errorf("unexpected answer %.80q", line) }

// value returns the value of an item. A long value is passed over: something else wrote
// it, under the name of one bucket.
func (x *exchange) value(length, in []byte) (v []byte, size int, ok bool) {
	if n, err := strconv.Atoi(string(length)); err == nil && n > maxValue && n <= maxItem {
		x.skip = n + 2
		return []byte("more than 1024 bytes"), 0, true // no count: an error names it
	}
	return value(length, in)
}

// value returns the value at the start of in, whose length is announced, and
// its size with the end of the line, below zero if bytes are missing.
func value(length, in []byte) (v []byte, size int, ok bool) {
	n, err := strconv.Atoi(string(length))
	if err != nil || n < 0 || n > maxValue {
		return nil, 0, false
	}
	if len(in) < n+2 {
		return nil, -1, true
	}
	return in[:n], n + 2, string(in[n:n+2]) == "\r\n"
}

// serverError returns the error that a server reports for a single command.
func serverError(line []byte) error {
	if bytes.HasPrefix(line, []byte("SERVER_ERROR")) || bytes.HasPrefix(line, []byte("CLIENT_ERROR")) {
		return errors.New(string(line))
	}
	return nil
}

// noRoom reports whether an answer says that nothing was done for want of room.
func noRoom[T string | []byte](line T) bool {
	const start = "SERVER_ERROR out of memory"
	return len(line) >= len(start) && strings.EqualFold(string(line[:len(start)]), start)
}

// count takes the answer to an addition.
func (x *exchange) count(a *addition, v []byte) {
	count, err := strconv.ParseUint(string(bytes.TrimRight(v, " ")), 10, 64)
	switch {
	case err != nil:
		a.err = fmt.Errorf("answered %.40q, want a number", v)
	case x.n < 0:
		a.count, a.err = item.Rest(count)
	default:
		a.count, a.made, a.err = item.Sum(x.n, count)
	}
}

// parseItem reads an item of a multi-get, or the end of the multi-get. Missing
// items are left out. The others come in the order asked for; without meta
// commands in any order, since a proxy may put them together from several servers.
func (x *exchange) parseItem(line, rest []byte) (size int, ok bool, err error) {
	text, is := bytes.CutPrefix(line, []byte("VALUE "))
	if !is {
		err := serverError(line)
		x.failRead("get", err)
		x.chunks--
		return 0, err != nil || string(line) == "END", nil
	}
	name, flags, _ := bytes.Cut(text, []byte(" "))
	_, length, _ := bytes.Cut(flags, []byte(" "))
	v, size, ok := x.value(length, rest)
	if !ok || size < 0 {
		return size, ok, nil
	}
	i := x.reads.find(x.key, name)
	if i < x.at {
		return 0, false, errNotAsked
	}
	if x.dialect.tagged {
		x.at = i + 1
	}
	if i == x.must {
		x.must = -1
	}
	if x.reads.counts[i], err = item.Count(v); err != nil {
		x.failRead("get bucket "+item.Bucket(string(name)), err)
	}
	return size, true, nil
}

func (x *exchange) failRead(verb string, err error) {
	if x.readErr == nil && err != nil {
		x.readErr, x.readVerb = err, verb
	}
}

// parsePlain reads a line, and an item if it has one, of the answer to a plain
// command.
func (x *exchange) parsePlain(line, rest []byte) (size int, ok bool) {
	kind, text, _ := bytes.Cut(line, []byte(" "))
	name, text, _ := bytes.Cut(text, []byte(" "))
	switch string(kind) {
	case "VALUE":
		_, text, _ = bytes.Cut(text, []byte(" "))
		length, cas, _ := bytes.Cut(text, []byte(" "))
		v, size, ok := x.value(length, rest)
		if ok && size >= 0 {
			x.found = append(x.found, found{string(name), bytes.Clone(v), string(cas)})
		}
		return size, ok && len(x.found) <= maxFound
	case "STAT":
		x.found = append(x.found, found{name: string(name), value: bytes.Clone(text)})
		return 0, len(x.found) <= maxFound
	case "ERROR": // of a proxy that has no such statistics; data of other commands would follow
		if x.verb != "stats" {
			return 0, false
		}
		fallthrough
	case "END", "STORED", "NOT_STORED", "EXISTS", "NOT_FOUND", "DELETED", "SERVER_ERROR", "CLIENT_ERROR":
		x.lines = append(x.lines, string(line))
		x.plain--
		return 0, true
	}
	return 0, false
}

// parseEnd reads the answer to the command behind the reads. A proxy may fail for
// it: the read fails, and the connection does not.
func (x *exchange) parseEnd(line []byte) (ok bool) {
	x.open = false
	if err := serverError(line); err != nil {
		x.failRead("get", err)
		return true
	}
	var buf [24]byte
	status, tag, _ := bytes.Cut(line, []byte(" "))
	return (string(status) == "NF" || string(status) == "HD") && bytes.Equal(tag, appendTag(buf[:0], x.tag+uint64(len(x.adds))))
}

// result hands the answers to the caller, and returns the first error.
func (x *exchange) result(t *transport, op *backend.Request) error {
	err := x.err
	for i := range x.adds {
		a := &x.adds[i]
		if a.err == nil {
			op.Add[i].Count = a.count
		} else if err == nil {
			err = t.failedItem(x.verb, x.name(i), a.err)
		}
	}
	switch {
	case err != nil:
	case x.readErr != nil:
		err = t.failed(x.readVerb, x.readErr)
	case len(x.reads.counts) > 0 && x.must >= 0:
		err = t.failed("get", errMissing)
	default:
		x.reads.fill(op)
	}
	return err
}
