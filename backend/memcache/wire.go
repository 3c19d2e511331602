package memcache

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// The commands of an exchange, all in one write:
//
//	ma NAME v N<ttl> J<n> D<n> O<tag>   adds n, or creates the item with n
//	ma NAME v MD D<n> O<tag>            takes n from the item, if there is one
//	get NAME NAME ...                   reads, up to chunkSize items
//	ma |abacus D0 O<tag>                ends reads that have no other proof, and changes nothing
//
// The answers come in the order of the commands:
//
//	VA <size> O<tag> and a line with the count; NF O<tag> without an item
//	VALUE NAME <flags> <size> and a line with the count, for each item; END
//	NF O<tag>
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
)

// errNoMeta is the error of a server that does not know the command ma.
var errNoMeta = errors.New("the server has no meta commands")

// errMissing is the error of reads that do not know of the addition before them.
var errMissing = errors.New("answered without an item that had just been added to")

// exchange is a Do on a pipeline: the commands of a request, and the answers.
// An exchange has copies of the request, since answers may come after the
// return of Do.
type exchange struct {
	n       int64
	adds    []metaAddition
	reads   reads
	request []byte // the commands
	tag     uint64 // of the first addition; the others follow, and the end of the reads

	// Of the goroutine that reads the answers, until the state is finished.
	answered int    // additions that have an answer
	chunks   int    // multi-gets without their END
	open     bool   // the answer behind the multi-gets is to come
	must     int    // the count whose item must come; below zero: none
	at       int    // the first count that the next item can belong to
	names    []byte // the rest of the request from the name of that item on
	readErr  error  // of the first multi-get or item that failed
	readVerb string // "get bucket 1m29454210"
	err      error  // the connection failed

	state   atomic.Int32
	wake    chan struct{} // a signal: the exchange is finished, or the caller is to read
	timer   *time.Timer
	spoiled bool   // a signal may still come: not to be used again
	sentAt  uint64 // answers of the pipeline when the exchange was queued
	gate    gate   // of which a token is held, nil if none is; under the lock of the pipeline once queued
	undo    bool   // takes back late additions
}

// metaAddition is a [backend.Slot] in an exchange.
type metaAddition struct {
	from, to int   // the name in the request
	count    int64 // the Count of the Slot
	made     bool  // n was added, for certain
	noRoom   bool  // nothing was changed, since the server has no room
	err      error
}

// States of an exchange.
const (
	waiting   = iota // the caller waits
	finished         // answered, or failed: the exchange is the caller's
	abandoned        // the caller has returned: the exchange is the pipeline's
)

var exchanges = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &exchange{wake: make(chan struct{}, 1), timer: timer}
}}

// tags counts the tags given to additions.
var tags atomic.Uint64

// newExchange returns an exchange for a number of additions of n.
func newExchange(n int64, additions int) *exchange {
	x := exchanges.Get().(*exchange)
	x.n, x.tag = n, tags.Add(uint64(additions)+1)-uint64(additions)-1
	return x
}

// recycle gives back an exchange whose answers have all come, or that was not
// sent.
func (x *exchange) recycle() {
	if x.spoiled || x.err != nil {
		return
	}
	clear(x.adds)
	*x = exchange{adds: x.adds[:0], reads: reads{runs: x.reads.runs[:0], counts: x.reads.counts[:0]}, request: x.request[:0], wake: x.wake, timer: x.timer}
	exchanges.Put(x)
}

// encode checks op and writes its commands. Without commands the request stays
// empty. ordered says that reads are executed after additions.
func (x *exchange) encode(op *backend.Request, now time.Time, ordered bool) (err error) {
	if len(op.Add) > 0 {
		if err = checkN(op.N); err != nil {
			return err
		}
	}
	for i := range op.Add {
		slot, ttl := &op.Add[i], int32(0)
		if err = checkWidth(slot.Width); err == nil && op.N > 0 {
			ttl, err = expiration(op.Life(slot), now)
		}
		if err != nil {
			return err
		}
		x.request = append(x.request, "ma "...)
		from := len(x.request)
		x.request = strconv.AppendInt(appendStem(x.request, op.Key, slot.Width), slot.Index, 10)
		x.add(from, ttl)
	}
	if err = x.reads.merge(op); err != nil || len(x.reads.counts) == 0 {
		return err
	}
	size, first := chunkSize, len(x.request)+len("get ")
	var buf [250]byte
	for _, run := range x.reads.runs {
		stem := appendStem(append(buf[:0], ' '), op.Key, run.Width)
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
	end := len(x.request)
	x.must = -1
	for i := 0; i < len(op.Add) && op.N > 0 && ordered; i++ {
		x.must = max(x.must, x.reads.index(op.Add[i].Bucket))
	}
	if x.open = x.must < chunkSize*(x.chunks-1); x.open { // also if the last multi-get has no such item
		x.request = append(x.request, probeCommand...)
		x.request = append(x.appendTag(append(x.request, ' '), len(x.adds)), "\r\n"...)
	}
	x.names = x.request[first:end]
	return nil
}

// add completes the command of an addition whose name is the end of the
// request, from the given byte on.
func (x *exchange) add(from int, ttl int32) {
	b, to := x.request, len(x.request)
	if x.n > 0 {
		b = strconv.AppendInt(append(b, " v N"...), int64(ttl), 10)
		b = strconv.AppendInt(append(b, " J"...), x.n, 10)
		b = strconv.AppendInt(append(b, " D"...), x.n, 10)
	} else {
		b = strconv.AppendInt(append(b, " v MD D"...), -x.n, 10)
	}
	x.request = append(x.appendTag(append(b, ' '), len(x.adds)), "\r\n"...)
	x.adds = append(x.adds, metaAddition{from: from, to: to})
}

// appendTag appends the tag of addition i, or behind the last that of the reads.
func (x *exchange) appendTag(b []byte, i int) []byte {
	return strconv.AppendUint(append(b, 'O'), x.tag+uint64(i), 10)
}

// takingBack returns the exchange that takes back n from items.
func takingBack(names []string, n int64) *exchange {
	x := newExchange(-n, len(names))
	x.undo = true
	x.state.Store(abandoned)
	for _, name := range names {
		x.request = append(x.request, "ma "...)
		from := len(x.request)
		x.request = append(x.request, name...)
		x.add(from, 0)
	}
	return x
}

// name returns the name of the item of addition i.
func (x *exchange) name(i int) string { return string(x.request[x.adds[i].from:x.adds[i].to]) }

// parse reads the answers at the begin of in, as far as these have come, and
// returns their length. After an error the connection cannot be used any more.
func (x *exchange) parse(in []byte) (n int, complete bool, err error) {
	for x.answered < len(x.adds) || x.chunks > 0 || x.open {
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
		case x.answered < len(x.adds):
			size, ok, err = x.parseAddition(line, rest, ok)
		case x.chunks > 0:
			size, ok, err = x.parseItem(line, rest, ok)
		default:
			var buf [24]byte
			if err := serverError(line); err != nil { // of a proxy: the read fails, and the connection does not
				if x.open = false; x.readErr == nil {
					x.readErr, x.readVerb = err, "get"
				}
				break
			}
			status, tag, _ := bytes.Cut(line, []byte(" "))
			ok = ok && (string(status) == "NF" || string(status) == "HD") && bytes.Equal(tag, x.appendTag(buf[:0], len(x.adds)))
			x.open = !ok
		}
		switch {
		case err != nil:
			return n, false, err
		case !ok:
			return n, false, unexpected(line)
		case size < 0:
			return n, false, nil
		}
		n += end + 1 + size
	}
	return n, true, nil
}

func unexpected(line []byte) error { return fmt.Errorf("unexpected answer %.80q", line) }

// value returns the value at the begin of in, whose length is announced, and
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

// serverError returns the error that a server tells for a single command.
func serverError(line []byte) error {
	if bytes.HasPrefix(line, []byte("SERVER_ERROR")) || bytes.HasPrefix(line, []byte("CLIENT_ERROR")) {
		return errors.New(string(line))
	}
	return nil
}

// parseAddition reads the answer to an addition.
func (x *exchange) parseAddition(line, rest []byte, ok bool) (size int, _ bool, err error) {
	a := &x.adds[x.answered]
	var buf [24]byte
	tag := x.appendTag(buf[:0], x.answered)
	if a.err = serverError(line); a.err != nil {
		a.noRoom = bytes.HasPrefix(bytes.ToLower(line), []byte("server_error out of memory"))
	} else if flags, found := bytes.CutPrefix(line, []byte("VA ")); found {
		length, flags, _ := bytes.Cut(flags, []byte(" "))
		var v []byte
		if v, size, ok = value(length, rest); !ok || size < 0 || !bytes.Equal(flags, tag) {
			return size, ok && bytes.Equal(flags, tag), nil
		}
		x.count(a, v)
	} else if flags, found := bytes.CutPrefix(line, []byte("NF ")); !found || x.n > 0 || !bytes.Equal(flags, tag) {
		if string(line) == "ERROR" {
			err = errNoMeta
		}
		return 0, false, err
	}
	x.answered++
	return size, ok, nil
}

// count takes the answer to an addition: memcached knows no MaxCount, and wraps
// to zero at 2^64.
func (x *exchange) count(a *metaAddition, v []byte) {
	count, err := strconv.ParseUint(string(bytes.TrimRight(v, " ")), 10, 64)
	switch {
	case err != nil:
		a.err = fmt.Errorf("answered %.40q, want a number", v)
	case x.n < 0 && count > math.MaxInt64:
		a.err = beyond(count)
	case x.n < 0:
		a.count = int64(min(count, backend.MaxCount)) // the excess is about to be taken back by other calls
	case count < uint64(x.n) || count > math.MaxInt64:
		a.err = errHuge
	case count > backend.MaxCount:
		a.made, a.err = true, fmt.Errorf("would hold %d: %w", count, backend.ErrMaxCount)
	default:
		a.made, a.count = true, int64(count)
	}
}

// parseItem reads an item of a multi-get, or the end of the multi-get. Items
// come in the order asked for; missing items are left out.
func (x *exchange) parseItem(line, rest []byte, ok bool) (size int, _ bool, err error) {
	item, found := bytes.CutPrefix(line, []byte("VALUE "))
	if !found {
		err := serverError(line)
		if x.readErr == nil && err != nil {
			x.readErr, x.readVerb = err, "get"
		}
		x.chunks--
		return 0, ok && (err != nil || string(line) == "END"), nil
	}
	name, flags, _ := bytes.Cut(item, []byte(" "))
	_, length, _ := bytes.Cut(flags, []byte(" "))
	v, size, valid := value(length, rest)
	if !ok || !valid || size < 0 {
		return size, ok && valid, nil
	}
	for i := x.at; i < len(x.reads.counts); i++ {
		end := bytes.IndexAny(x.names, " \r")
		asked, next := x.names[:end], end+1
		if x.names[end] == '\r' {
			next = min(end+len("\r\nget "), len(x.names))
		}
		x.names = x.names[next:]
		if bytes.Equal(asked, name) {
			if x.reads.counts[i], err = parseCount(v); err != nil && x.readErr == nil {
				x.readErr, x.readVerb = err, "get bucket "+string(name[bytes.LastIndexByte(name, separator)+1:])
			}
			x.at = i + 1
			if i == x.must {
				x.must = -1
			}
			return size, true, nil
		}
	}
	return 0, false, errors.New("answered with an item that was not asked for")
}

// result hands the answers to the caller, and returns the first error.
func (x *exchange) result(p *peer, op *backend.Request) error {
	err := x.err
	for i := range x.adds {
		a := &x.adds[i]
		if a.err == nil {
			op.Add[i].Count = a.count
		} else if err == nil {
			err = p.failedItem("ma", x.name(i), a.err)
		}
	}
	switch {
	case err != nil:
	case x.readErr != nil:
		err = p.failed(x.readVerb, x.readErr)
	case len(x.reads.counts) > 0 && x.must >= 0:
		err = p.failed("get", errMissing)
	default:
		x.reads.fill(op)
	}
	return err
}
