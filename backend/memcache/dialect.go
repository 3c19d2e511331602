package memcache

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// dialect is the commands of a server for additions, and for undoing them.
// Everything else is said alike to all servers.
type dialect struct {
	question   string   // changes nothing; the first command of a connection
	answers    []string // of a server that speaks the dialect
	tagged     bool     // the answers to additions have tags, and reads are followed by a question with a tag
	verb, undo string   // in errors

	// The commands of an addition and of an undo: a word, the name, and the rest,
	// which is appended to b, in which the name is b[from:].
	addWord, undoWord string
	appendAdd         func(b []byte, from int, n int64, ttl int32, tag uint64) []byte
	appendUndo        func(b []byte, n int64, tag uint64) []byte

	// parse reads the answer to the next addition of x, or a part of it: a line,
	// and size bytes of rest, below zero if bytes are missing.
	parse func(x *exchange, line, rest []byte) (size int, ok bool, err error)
}

// meta is spoken by memcached since 1.6. One command adds to the item, or
// creates it.
var meta = &dialect{
	question: "ma |abacus D0", answers: []string{"NF", "HD"}, tagged: true,
	verb: "ma", undo: "ma", addWord: "ma ", undoWord: "ma ",
	appendAdd: func(b []byte, _ int, n int64, ttl int32, tag uint64) []byte {
		b = strconv.AppendInt(append(b, " v N"...), int64(ttl), 10)
		b = strconv.AppendInt(append(b, " J"...), n, 10)
		b = strconv.AppendInt(append(b, " D"...), n, 10)
		return append(appendTag(append(b, ' '), tag), "\r\n"...)
	},
	appendUndo: func(b []byte, n int64, tag uint64) []byte {
		b = strconv.AppendInt(append(b, " v MD D"...), n, 10)
		return append(appendTag(append(b, ' '), tag), "\r\n"...)
	},
	parse: parseMeta,
}

// classic is spoken by every memcached, and by proxies. The first of two commands
// creates the item with 0 if there is none, the second adds.
var classic = &dialect{
	question: "get |abacus", answers: []string{"END"},
	verb: "incr", undo: "decr", addWord: "add ", undoWord: "decr ",
	appendAdd: func(b []byte, from int, n int64, ttl int32, _ uint64) []byte {
		name := b[from:]
		b = strconv.AppendInt(append(b, " 0 "...), int64(ttl), 10)
		b = append(append(append(b, " 1\r\n0\r\nincr "...), name...), ' ')
		return append(strconv.AppendInt(b, n, 10), "\r\n"...)
	},
	appendUndo: func(b []byte, n int64, _ uint64) []byte {
		return append(strconv.AppendInt(append(b, ' '), n, 10), "\r\n"...)
	},
	parse: parseClassic,
}

func appendTag(b []byte, tag uint64) []byte { return strconv.AppendUint(append(b, 'O'), tag, 10) }

// errNoMeta is the error of a server that does not know the command ma.
var errNoMeta = errors.New("the server has no meta commands")

func parseMeta(x *exchange, line, rest []byte) (size int, ok bool, err error) {
	a := &x.adds[x.answered]
	var buf [24]byte
	tag := appendTag(buf[:0], x.tag+uint64(x.answered))
	if a.err = serverError(line); a.err != nil {
		a.noRoom = noRoom(line)
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
	return size, true, nil
}

// maxTries bounds how often a classic addition is sent. Each time more means that
// the item was gone between the two commands: a crowd may hit a key while several
// callers forget the key.
const maxTries = 12

// errVanished is the error of an item that is gone again and again: the server has
// no room, or deletes the item.
var errVanished = fmt.Errorf("the item came and went %d times", maxTries)

func parseClassic(x *exchange, line, _ []byte) (size int, ok bool, err error) {
	a := &x.adds[x.answered]
	failed := serverError(line)
	if x.n > 0 && !x.created { // the answer to the add
		x.created, a.err = true, failed // a full server refuses though there is an item
		return 0, failed != nil || string(line) == "STORED" || string(line) == "NOT_STORED", nil
	}
	switch {
	case len(line) > 0 && line[0] >= '0' && line[0] <= '9':
		a.err = nil
		x.count(a, line)
	case failed != nil:
		a.err, a.noRoom = failed, noRoom(line)
	case string(line) != "NOT_FOUND":
		return 0, false, fmt.Errorf("answered %.80q, want a number", line)
	case x.n > 0 && a.err == nil:
		a.gone, a.err = true, errVanished
	}
	x.created = false
	x.answered++
	return 0, true, nil
}
