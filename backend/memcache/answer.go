package memcache

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache/internal/item"
	"github.com/abacus-go/abacus/tiers"
)

// The answers come in the order of the commands:
//
//	VA <size> O<tag> and a line with the count; NF O<tag> without an item
//	VALUE NAME <flags> <size> and a line with the count, for each item; END
//	NF O<tag>
//
//	STORED or NOT_STORED, and the count; the count, or NOT_FOUND
//
// A line or a value beyond the bounds closes the connection.
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

	// errNoMeta is the error of a server that does not know the command ma.
	errNoMeta = errors.New("the server has no meta commands")

	// errVanished is the error of an item that is gone again and again: the server has
	// no room, or deletes the item.
	errVanished = fmt.Errorf("the item came and went %d times", maxTries)
)

// answer is a line, with the value that follows the lines VA and VALUE.
type answer struct {
	line, kind  []byte // the kind is the first word
	name, value []byte // of an item
	text        []byte // the rest of the line: a tag, a cas, a statistic
}

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
		a, size, err := x.next(in[n:])
		switch {
		case err != nil || size == 0:
			return n, false, err
		case x.answered < len(x.adds) && x.meta:
			err = x.parseMeta(&a)
		case x.answered < len(x.adds):
			err = x.parseClassic(&a)
		case x.chunks > 0:
			err = x.parseItem(&a)
		case x.plain > 0:
			err = x.parsePlain(&a)
		default:
			err = x.parseEnd(&a)
		}
		if err != nil {
			return n, false, err
		}
		n += size
	}
	return n, true, nil
}

// next returns the answer at the start of in, and its size, 0 if bytes are missing.
// A long value of an item is passed over: something else wrote it, under the name of
// one bucket.
func (x *exchange) next(in []byte) (a answer, size int, err error) {
	end := bytes.IndexByte(in, '\n')
	switch {
	case end > maxLine || end < 0 && len(in) > maxLine:
		return a, 0, fmt.Errorf("a line of more than %d bytes", maxLine)
	case end < 0:
		return a, 0, nil
	}
	var ok bool
	if a.line, ok = bytes.CutSuffix(in[:end], []byte("\r")); !ok {
		return a, 0, unexpected(a.line)
	}
	size = end + 1
	a.kind, a.text, _ = bytes.Cut(a.line, []byte(" "))
	switch string(a.kind) {
	case "VALUE":
		a.name, a.text, _ = bytes.Cut(a.text, []byte(" "))
		_, a.text, _ = bytes.Cut(a.text, []byte(" "))
	case "VA":
	default:
		return a, size, nil
	}
	length, text, _ := bytes.Cut(a.text, []byte(" "))
	a.text = text
	n, err := strconv.Atoi(string(length))
	switch {
	case err != nil || n < 0 || n > maxItem || n > maxValue && string(a.kind) == "VA":
		return a, 0, unexpected(a.line)
	case n > maxValue:
		x.skip = n + 2
		a.value = []byte("more than 1024 bytes") // no count: an error names it
		return a, size, nil
	case len(in) < size+n+2:
		return a, 0, nil
	case string(in[size+n:size+n+2]) != "\r\n":
		return a, 0, unexpected(a.line)
	}
	a.value = in[size : size+n]
	return a, size + n + 2, nil
}

// shown returns a line for an error. The name of an item is left out up to its bucket,
// since the key may hold a personal address.
func shown[T string | []byte](line T) string {
	text := string(line)
	if strings.HasPrefix(text, "VALUE ") {
		text = "VALUE ..." + text[max(5, strings.LastIndexByte(text, item.Separator)):]
	}
	return fmt.Sprintf("%.80q", text)
}

func unexpected[T string | []byte](line T) error {
	return errors.New("unexpected answer " + shown(line))
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

// isTag reports whether the text of a is the tag of addition i.
func (x *exchange) isTag(a *answer, i int) bool {
	var buf [24]byte
	return bytes.Equal(a.text, appendTag(buf[:0], x.tag+uint64(i)))
}

// parseMeta reads the answer to the next addition, or to the undo of one.
func (x *exchange) parseMeta(a *answer) error {
	to, mine := &x.adds[x.answered], x.isTag(a, x.answered)
	switch {
	case mine && string(a.kind) == "VA":
		x.count(to, a.value)
	case mine && string(a.kind) == "NF" && x.n < 0: // nothing to undo
	case string(a.line) == "ERROR":
		return errNoMeta
	default:
		if to.err = serverError(a.line); to.err == nil {
			return unexpected(a.line)
		}
		to.noRoom = noRoom(a.line)
	}
	x.answered++
	return nil
}

// parseClassic is parseMeta for one of the two answers to an addition, or for the
// one answer to its undo.
func (x *exchange) parseClassic(a *answer) error {
	to, failed := &x.adds[x.answered], serverError(a.line)
	if x.n > 0 && !x.created { // the answer to the add
		if failed == nil && string(a.line) != "STORED" && string(a.line) != "NOT_STORED" {
			return unexpected(a.line)
		}
		x.created, to.err = true, failed // a full server refuses though there is an item
		return nil
	}
	switch {
	case len(a.line) > 0 && a.line[0] >= '0' && a.line[0] <= '9':
		to.err = nil
		x.count(to, a.line)
	case failed != nil:
		to.err, to.noRoom = failed, noRoom(a.line)
	case string(a.line) != "NOT_FOUND":
		return fmt.Errorf("answered %s, want a number", shown(a.line))
	case x.n > 0 && to.err == nil:
		to.gone, to.err = true, errVanished
	}
	x.created = false
	x.answered++
	return nil
}

// count takes the answer to an addition.
func (x *exchange) count(to *addition, v []byte) {
	count, err := strconv.ParseUint(string(bytes.TrimRight(v, " ")), 10, 64)
	switch {
	case err != nil:
		to.err = fmt.Errorf("answered %.40q, want a number", v)
	case x.n < 0:
		to.count, to.err = item.Rest(count)
	default:
		to.count, to.made, to.err = item.Sum(x.n, count)
	}
}

// parseItem reads an item of a multi-get, or the end of the multi-get. Missing
// items are left out. The others come in the order asked for; without meta
// commands in any order, since a proxy may put them together from several servers.
func (x *exchange) parseItem(a *answer) error {
	if string(a.kind) != "VALUE" {
		x.chunks--
		err := serverError(a.line)
		x.failRead("get", err)
		if err == nil && string(a.line) != "END" {
			return unexpected(a.line)
		}
		return nil
	}
	if len(a.text) > 0 {
		return unexpected(a.line) // two answers run together
	}
	count, err := item.Count(a.value)
	if err != nil {
		x.failRead("get bucket "+item.Bucket(string(a.name)), err)
	}
	b, i := x.findItem(a.name)
	if i < 0 {
		return errNotAsked
	}
	if x.meta {
		x.at = i + 1
	}
	if i == x.must {
		x.must = -1
	}
	for ; i >= 0; i = x.find(b, i+1) { // spans may overlap
		x.counts[i] = count
	}
	return nil
}

// findItem returns the bucket of an item, and the index of its next count, below zero
// if it is not read.
func (x *exchange) findItem(name []byte) (b tiers.Bucket, i int) {
	from := len(name)
	for from > 0 && (name[from-1] == '-' || '0' <= name[from-1] && name[from-1] <= '9') {
		from--
	}
	b.Index, _ = strconv.ParseInt(string(name[from:]), 10, 64)
	var buf [item.MaxName]byte
	for _, run := range x.runs {
		b.Width = run.Width
		if i := x.find(b, x.at); i >= 0 && bytes.Equal(item.AppendName(buf[:0], x.key, b), name) {
			return b, i
		}
	}
	return b, -1
}

// find returns the index of the first count of a bucket from the given index on,
// below zero if it is not read.
func (x *exchange) find(b tiers.Bucket, from int) int {
	first := 0 // the index of the run's first count
	for _, run := range x.runs {
		if at := b.Index - run.First; run.Width == b.Width && at >= 0 && at < run.N && first+int(at) >= from {
			return first + int(at)
		}
		first += int(run.N)
	}
	return -1
}

func (x *exchange) failRead(verb string, err error) {
	if x.readErr == nil && err != nil {
		x.readErr, x.readVerb = err, verb
	}
}

// parsePlain reads a line, and an item if it has one, of the answer to a plain
// command.
func (x *exchange) parsePlain(a *answer) error {
	switch string(a.kind) {
	case "VALUE":
		x.found = append(x.found, found{string(a.name), bytes.Clone(a.value), string(a.text)})
	case "STAT":
		name, value, _ := bytes.Cut(a.text, []byte(" "))
		x.found = append(x.found, found{name: string(name), value: bytes.Clone(value)})
	case "ERROR": // of a proxy that has no such statistics; data of other commands would follow
		if x.verb != "stats" {
			return unexpected(a.line)
		}
		fallthrough
	case "END", "STORED", "NOT_STORED", "EXISTS", "NOT_FOUND", "DELETED", "SERVER_ERROR", "CLIENT_ERROR":
		x.lines = append(x.lines, string(a.line))
		x.plain--
	default:
		return unexpected(a.line)
	}
	if len(x.found) > maxFound {
		return unexpected(a.line)
	}
	return nil
}

// parseEnd reads the answer to the command behind the reads. A proxy may fail for
// it: the read fails, and the connection does not.
func (x *exchange) parseEnd(a *answer) error {
	err := serverError(a.line)
	if err == nil && (string(a.kind) != "NF" && string(a.kind) != "HD" || !x.isTag(a, len(x.adds))) {
		return unexpected(a.line)
	}
	x.failRead("get", err)
	x.open = false
	return nil
}

// result returns the first error of the answers. Without one the counts of op are
// filled in.
func (x *exchange) result(t *transport, op *backend.Request) error {
	err := x.err
	for i := range x.adds {
		a := &x.adds[i]
		if a.err == nil {
			op.Add[i].Count = a.count
		} else if err == nil {
			err = t.failedItem(x.verb, item.Name(x.key, a.bucket), a.err)
		}
	}
	if err == nil && x.readErr != nil {
		err = t.failed(x.readVerb, x.readErr)
	}
	if err == nil && len(x.counts) > 0 && x.must >= 0 {
		err = t.failed("get", errMissing)
	}
	if err != nil {
		return err
	}
	counts := x.counts
	for i := range op.Read {
		counts = counts[copy(op.Read[i].Counts, counts):]
	}
	return nil
}
