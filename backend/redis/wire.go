package redis

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

// How a client sends a script, in the Redis serialization protocol: an array of
// bulk strings, "*5\r\n$7\r\nevalsha\r\n$40\r\n...". The last one is the program,
// and byte modeAt of it says what to do.

var countingScripts = [][]byte{
	byName(takeScript.Name()), byName(doScript.Name()), byText(takeScript.Text()), byText(doScript.Text()),
}

func byName(name string) []byte { return []byte("$7\r\nevalsha\r\n$40\r\n" + name + "\r\n") }
func byText(text string) []byte {
	return []byte("$4\r\neval\r\n$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n")
}

// counts tells whether b begins with one of the scripts that count, also if b is
// only a part of the request.
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

// bulks calls f with each of the bulk strings of a request, and tells whether it
// is one whole request and nothing else.
func bulks(request []byte, f func([]byte)) bool {
	line := func(first byte) (int, bool) {
		i := bytes.Index(request, []byte("\r\n"))
		if i < 1 || request[0] != first {
			return 0, false
		}
		n, err := strconv.Atoi(string(request[1:i]))
		request = request[i+2:]
		return n, err == nil && n >= 0
	}
	n, ok := line('*')
	for ; ok && n > 0; n-- {
		var size int
		if size, ok = line('$'); !ok || len(request) < size+2 {
			return false
		}
		f(request[:size])
		request = request[size+2:]
	}
	return ok && len(request) == 0
}

// whole tells whether nothing of the request is missing.
func whole(request []byte) bool { return bulks(request, func([]byte) {}) }

// takeItBack makes of a request that counts the one that takes the same hits
// back, and tells whether it was one. Where the answer was that not all soft keys
// had room, none of them is taken back: the answer does not tell which had. They
// deny nobody, and count too much rather than too little.
func takeItBack(request []byte, of said) bool {
	var p program
	if !bulks(request, func(b []byte) { p = b }) || len(p) < programHead || p[modeAt] != modeCount {
		return false
	}
	p[modeAt] = modeBack
	if of == countedPart {
		p[modeAt] = modePartBack
	}
	p.by(0)
	return true
}

// said is what a script has answered.
type said int

const (
	nothing     said = iota // that counts: a denial, an error
	counted                 // hits were counted, or taken back
	countedPart             // hits were counted, but not of all soft keys
	tooLate                 // to count them
)

const maxReply = 64 << 20

// readReply reads one answer, and what stands before it that is none.
func readReply(r *bufio.Reader) (said, error) {
	for {
		kind, first, err := readValue(r, 0)
		switch {
		case err != nil:
			return nothing, err
		case kind == '>': // a notice, not an answer
		case kind == '*' || kind == '$' && first == takenByte:
			return counted, nil
		case kind == '$' && first == partByte:
			return countedPart, nil
		case kind == '$' && first == lateByte:
			return tooLate, nil
		default:
			return nothing, nil
		}
	}
}

var errProtocol = errors.New("not an answer of a Redis server")

// readValue reads a value of either version of the protocol. first is the first
// byte of a string.
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
	if kind == '|' { // attributes stand before what they are about
		return readValue(r, depth)
	}
	return kind, first, nil
}
