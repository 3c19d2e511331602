package redis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/abacus-go/abacus/internal/redisscript"
)

// A client sends a script in the Redis serialization protocol, as an array of bulk
// strings, "*5\r\n$5\r\nfcall\r\n$28\r\n...". The last string is the request. In a
// pipeline commands follow one another. An addition of the layout Plain is the commands
// from MULTI to EXEC; EXEC has the answers of all.

var (
	// countingScripts are the bytes after the length of the array.
	countingScripts = [][]byte{
		bulk("fcall", takeScript.FunctionName()), bulk("fcall", doScript.FunctionName()),
		bulk("evalsha", takeScript.Name()), bulk("evalsha", doScript.Name()),
		bulk("eval", takeScript.Text()), bulk("eval", doScript.Text()),
	}
)

// bulk returns the bytes of bulk strings.
func bulk(all ...string) (b []byte) {
	for _, s := range all {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(s), s)
	}
	return b
}

// counts tells whether a command that runs a counting script begins in b. b is the
// beginning of one or more commands.
func counts(b []byte) bool {
	for {
		if runsCounting(b) {
			return true
		}
		rest, ok := nextCommand(b, nil)
		if !ok || len(rest) == 0 {
			return false
		}
		b = rest
	}
}

// beginsPlain are the bytes before the name of the first bucket in an addition of the
// layout Plain.
var beginsPlain = fmt.Appendf(bulkCommand("multi"), "*3\r\n%s", bulk("incrby"))

// addsPlain tells whether b begins with a transaction of the layout Plain that adds. A
// taking back begins with a number below zero.
func addsPlain(b []byte) (adds bool) {
	if !bytes.HasPrefix(b, beginsPlain) {
		return false
	}
	var words [][]byte
	b, _ = nextCommand(b, nil)
	nextCommand(b, func(word []byte) { words = append(words, word) })
	return len(words) == 3 && isBucketName(words[1]) && words[2][0] != '-'
}

// runsCounting tells whether b begins with a command that runs a counting script, or
// with a transaction that adds.
func runsCounting(b []byte) bool {
	if len(b) < 5 || b[0] != '*' {
		return false
	}
	if addsPlain(b) {
		return true
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

// nextCommand returns the bytes after the first command of b, and calls f, unless f
// is nil, with each of the command's strings. ok is false if b does not begin with
// a whole command.
func nextCommand(b []byte, f func([]byte)) (rest []byte, ok bool) {
	line := func(first byte) (int, bool) {
		i := bytes.IndexByte(b, '\n')
		if i < 2 || b[0] != first || b[i-1] != '\r' {
			return 0, false
		}
		n, err := strconv.Atoi(string(b[1 : i-1]))
		b = b[i+1:]
		return n, err == nil && n >= 0
	}
	n, ok := line('*')
	for ; ok && n > 0; n-- {
		var size int
		if size, ok = line('$'); !ok || len(b) < size+2 {
			return nil, false
		}
		if f != nil {
			f(b[:size])
		}
		b = b[size+2:]
	}
	return b, ok
}

// exchange is a command, or a transaction of the layout Plain, that was sent.
type exchange struct {
	bytes   []byte
	answers int // the last is the answer that tells the outcome
}

// nextExchange returns the first exchange of b, and the bytes behind. ok is false if b
// does not begin with a whole exchange.
func nextExchange(b []byte) (x exchange, rest []byte, ok bool) {
	adds := addsPlain(b)
	for rest = b; ; {
		if x.answers++; x.answers > maxAnswers {
			return x, nil, false
		}
		last := false
		if rest, ok = nextCommand(rest, func(word []byte) { last = string(word) == "exec" }); !ok {
			return x, nil, false
		}
		if !adds || last {
			x.bytes = b[:len(b)-len(rest)]
			return x, rest, true
		}
	}
}

// exchangesOf returns the exchanges of b, and whether b has nothing else.
func exchangesOf(b []byte) (exchanges []exchange, whole bool) {
	for len(b) > 0 {
		x, rest, ok := nextExchange(b)
		if !ok {
			return exchanges, false
		}
		exchanges, b = append(exchanges, x), rest
	}
	return exchanges, true
}

// whole tells whether b is nothing but whole commands.
func whole(b []byte) bool {
	_, whole := exchangesOf(b)
	return whole
}

// takeBack turns an exchange that counts into the exchange that takes the same hits
// back, and returns false for any other.
func (x *exchange) takeBack(of outcome) bool {
	if addsPlain(x.bytes) {
		x.takeBackPlain()
		return true
	}
	var r request
	rest, ok := nextCommand(x.bytes, func(b []byte) { r = b })
	return ok && len(rest) == 0 && runsCounting(x.bytes) && r.takeBack(of)
}

// byText turns a run of a program into a run of its text, which the server always
// knows, or which it runs without memory. byText returns false if there is no other way.
func (x *exchange) byText(of outcome) bool {
	var words []string
	_, ok := nextCommand(x.bytes, func(word []byte) { words = append(words, string(word)) })
	for _, sc := range []redisscript.Script{takeScript, doScript} {
		if !ok || len(words) < 2 || !slices.Contains([]string{sc.FunctionName(), sc.Name(), sc.Text()}, words[1]) {
			continue
		}
		switch of {
		case unknownProgram:
			words[1] = sc.Text()
		case noMemory:
			words[1] = sc.FreeingText()
		default:
			return false
		}
		words[0] = "eval"
		x.bytes = bulkCommand(words...)
		return true
	}
	return false
}

// takeBackPlain is takeBack for a transaction that adds. A bucket with less than was
// added has been emptied since, and nothing is taken from it.
func (x *exchange) takeBackPlain() {
	back, answers := bulkCommand("multi"), 2
	for rest, ok := x.bytes, true; ok && len(rest) > 0; {
		var words []string
		rest, ok = nextCommand(rest, func(word []byte) { words = append(words, string(word)) })
		if ok && len(words) == 3 && words[0] == "incrby" {
			for _, command := range takingBack(words[1], words[2]) {
				back = append(back, bulkCommand(command[:]...)...)
				answers++
			}
		}
	}
	x.bytes, x.answers = append(back, bulkCommand("exec")...), answers
}

// bulkCommand returns the bytes of a command.
func bulkCommand(words ...string) []byte {
	return append(fmt.Appendf(nil, "*%d\r\n", len(words)), bulk(words...)...)
}

// takeBack turns a request that counts into the request that takes the same hits back,
// and returns false for any other. The answer of a step does not name the soft keys
// without room: where not all soft keys had room, no soft key is taken back. Soft keys
// deny nobody, and count too much rather than too little.
func (r request) takeBack(of outcome) bool {
	if len(r) < requestHead || r[modeAt] != modeCount {
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
	notCounted     outcome = iota // a denial, an error
	counted                       // added, or taken back
	countedPart                   // added, but not to all soft keys
	tooLate                       // not added, since the deadline had passed
	unknownProgram                // the server does not have the function or script, and has done nothing
	noMemory                      // the server is full, and has done nothing
)

const (
	maxReply   = 64 << 20
	maxAnswers = 1 << 16 // to an exchange
)

// outcomeOf returns the outcome by an answer that the client has read.
func outcomeOf(answer any) outcome {
	switch answer := answer.(type) {
	case []any, int64:
		return counted
	case string:
		if answer != "" {
			return outcomeByFirst(answer[0])
		}
	}
	return notCounted
}

// outcomeByFirst returns the outcome by the first byte of an answer of a single string.
func outcomeByFirst(first byte) outcome {
	switch first {
	case addedByte:
		return counted
	case partByte:
		return countedPart
	case lateByte:
		return tooLate
	}
	return notCounted
}

// readOutcome reads up to the end of the answers to x.
func (x *exchange) readOutcome(r *bufio.Reader) (of outcome, err error) {
	for i := 0; i < x.answers && err == nil; i++ {
		of, err = readReply(r)
	}
	return of, err
}

// readReply reads up to the end of the next answer. Notices that the server sends
// unasked are passed over.
func readReply(r *bufio.Reader) (outcome, error) {
	for {
		kind, first, err := readValue(r, 0)
		switch {
		case err != nil:
			return notCounted, err
		case kind == '>':
		case kind == '*', kind == ':':
			return counted, nil
		case kind == '$':
			return outcomeByFirst(first), nil
		case kind == 'P':
			return unknownProgram, nil
		case kind == 'M':
			return noMemory, nil
		default:
			return notCounted, nil
		}
	}
}

var errProtocol = errors.New("not an answer of a Redis server")

// readValue reads a value of version 2 or 3 of the protocol. first is the first byte
// of a string. The kind of an error is 'P' if the server does not have the program, and
// 'M' if its memory is full.
func readValue(r *bufio.Reader, depth int) (kind, first byte, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 3 || depth > 8 {
		return 0, 0, errProtocol
	}
	kind = line[0]
	if bytes.HasPrefix(line, []byte("-ERR Function not found")) || bytes.HasPrefix(line, []byte("-NOSCRIPT ")) {
		return 'P', 0, nil
	} else if bytes.HasPrefix(line, []byte("-OOM ")) {
		return 'M', 0, nil
	}
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
