package redis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// A client sends a script in the Redis serialization protocol, as an array of bulk
// strings, "*5\r\n$5\r\nfcall\r\n$28\r\n...". The last string is the request.

// countingScripts are the bytes after the length of the array.
var countingScripts = [][]byte{
	bulk("fcall", takeScript.FunctionName()), bulk("fcall", doScript.FunctionName()),
	bulk("evalsha", takeScript.Name()), bulk("evalsha", doScript.Name()),
	bulk("eval", takeScript.Text()), bulk("eval", doScript.Text()),
}

// bulk returns the bytes of bulk strings.
func bulk(all ...string) (b []byte) {
	for _, s := range all {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(s), s)
	}
	return b
}

// counts tells whether b is the beginning of a command that runs a counting script.
func counts(b []byte) bool {
	if len(b) < 5 || b[0] != '*' {
		return false
	}
	i := bytes.IndexByte(b[:min(len(b), 16)], '\n')
	if i < 0 {
		return false
	}
	for _, s := range countingScripts {
		if bytes.HasPrefix(b[i+1:], s) {
			return true
		}
	}
	return false
}

// bulks calls f with each of the bulk strings of a command, and tells whether the bytes
// are a single whole command and nothing else.
func bulks(command []byte, f func([]byte)) bool {
	line := func(first byte) (int, bool) {
		i := bytes.Index(command, []byte("\r\n"))
		if i < 1 || command[0] != first {
			return 0, false
		}
		n, err := strconv.Atoi(string(command[1:i]))
		command = command[i+2:]
		return n, err == nil && n >= 0
	}
	n, ok := line('*')
	for ; ok && n > 0; n-- {
		var size int
		if size, ok = line('$'); !ok || len(command) < size+2 {
			return false
		}
		f(command[:size])
		command = command[size+2:]
	}
	return ok && len(command) == 0
}

// whole tells whether a command is complete.
func whole(command []byte) bool { return bulks(command, func([]byte) {}) }

// takeBack turns a command that counts into the command that takes the same hits
// back, and returns false for any other. The answer of a step does not name
// the soft keys without room: where not all soft keys had room, no soft key is taken
// back. Soft keys deny nobody, and count too much rather than too little.
func takeBack(command []byte, of outcome) bool {
	var r request
	if !bulks(command, func(b []byte) { r = b }) || len(r) < requestHead || r[modeAt] != modeCount {
		return false
	}
	r[modeAt] = modeBack
	if of == countedPart {
		r[modeAt] = modePartBack
	}
	r.setDeadline(0)
	return true
}

// outcome is the effect of a command on hits, by the answer.
type outcome int

const (
	notCounted  outcome = iota // a denial, an error
	counted                    // added, or taken back
	countedPart                // added, but not to all soft keys
	tooLate                    // not added, since the deadline had passed
)

const maxReply = 64 << 20

// readReply reads up to the end of the next answer. Notices that the server sends
// unasked are passed over.
func readReply(r *bufio.Reader) (outcome, error) {
	for {
		kind, first, err := readValue(r, 0)
		switch {
		case err != nil:
			return notCounted, err
		case kind == '>':
		case kind == '*' || kind == '$' && first == addedByte:
			return counted, nil
		case kind == '$' && first == partByte:
			return countedPart, nil
		case kind == '$' && first == lateByte:
			return tooLate, nil
		default:
			return notCounted, nil
		}
	}
}

var errProtocol = errors.New("not an answer of a Redis server")

// readValue reads a value of version 2 or 3 of the protocol. first is the first byte
// of a string.
func readValue(r *bufio.Reader, depth int) (kind, first byte, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 3 || depth > 8 {
		return 0, 0, errProtocol
	}
	kind = line[0]
	switch kind {
	case '+', '-', ':', '_', '#', ',', '(':
		return kind, 0, nil
	case '$', '=', '!', '*', '>', '~', '%', '|':
	default:
		return 0, 0, errProtocol
	}
	n, err := strconv.Atoi(string(line[1 : len(line)-2]))
	if err != nil || n > maxReply {
		return 0, 0, errProtocol
	}
	if n < 0 {
		return '_', 0, nil
	}
	if kind == '$' || kind == '=' || kind == '!' {
		if n > 0 {
			if first, err = r.ReadByte(); err != nil {
				return 0, 0, err
			}
			n--
		}
		_, err = io.CopyN(io.Discard, r, int64(n+2))
		return kind, first, err
	}
	if kind == '%' || kind == '|' {
		n *= 2
	}
	for range n {
		if _, _, err = readValue(r, depth+1); err != nil {
			return 0, 0, err
		}
	}
	if kind == '|' { // attributes of the next value
		return readValue(r, depth)
	}
	return kind, first, nil
}
