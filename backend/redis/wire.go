package redis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/abacus-go/abacus/backend/redis/plain"
)

// A client sends a script in the Redis serialization protocol, as an array of bulk
// strings, "*5\r\n$5\r\nfcall\r\n$28\r\n...". The last string is the request. In a
// pipeline commands follow one another. A call of the layout Plain is the commands
// from MULTI to EXEC; EXEC has the answers of all.

// exchange is the words of a command, or of the commands of a transaction. The last answer
// tells the outcome.
type exchange [][]string

// counting returns the programs that count.
func counting() []program { return []program{scripts().take, scripts().do} }

// countingPrefixes returns the bytes after the length of the array in what may count: of
// a program, and of an addition of the layout Plain.
var countingPrefixes = sync.OnceValue(func() (all [][]byte) {
	for _, p := range counting() {
		all = append(all, bulk("fcall", p.function), bulk("evalsha", p.Name()), bulk("eval", p.Text()))
	}
	return append(all, append(append(bulk("multi"), "*3\r\n"...), bulk("incrby")...))
})

// bulk returns the bytes of bulk strings.
func bulk(all ...string) (b []byte) {
	for _, s := range all {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(s), s)
	}
	return b
}

// counts reports whether a command that may count begins in b. b is the beginning of one
// or more commands.
func counts(b []byte) bool {
	for ok := true; ok && len(b) > 0; b, ok = nextCommand(b, nil) {
		after := b[1+bytes.IndexByte(b[:min(len(b), 16)], '\n'):]
		if slices.ContainsFunc(countingPrefixes(), func(p []byte) bool { return bytes.HasPrefix(after, p) }) {
			return true
		}
	}
	return false
}

// nextCommand returns the bytes after the first command of b, and appends the command's
// words to words, unless that is nil. ok is false if b does not begin with a whole command.
func nextCommand(b []byte, words *[]string) (rest []byte, ok bool) {
	length := func(first byte) int {
		i := bytes.IndexByte(b, '\n')
		if i < 2 || b[0] != first || b[i-1] != '\r' {
			return -1
		}
		n, err := strconv.Atoi(string(b[1 : i-1]))
		if b = b[i+1:]; err != nil {
			return -1
		}
		return n
	}
	n := length('*')
	for range n {
		size := length('$')
		if size < 0 || len(b) < size+2 {
			return nil, false
		}
		if words != nil {
			*words = append(*words, string(b[:size]))
		}
		b = b[size+2:]
	}
	return b, n > 0
}

// whole reports whether b is nothing but whole exchanges.
func whole(b []byte) bool {
	transaction, ended := bytes.HasPrefix(b, []byte("*1\r\n$5\r\nmulti\r\n")), bytes.HasSuffix(b, []byte("exec\r\n"))
	ok := ended || !transaction
	for ok && len(b) > 0 {
		b, ok = nextCommand(b, nil)
	}
	return ok
}

// exchangesOf returns the whole exchanges that b begins with.
func exchangesOf(b []byte) (all []exchange) {
	var x exchange
	for ok := true; ok && len(b) > 0; {
		var words []string
		if b, ok = nextCommand(b, &words); ok {
			x = append(x, words)
		}
		if ok && (x[0][0] != "multi" || words[0] == "exec") {
			all, x = append(all, x), nil
		}
	}
	return all
}

// counts reports whether x runs a program that counts, or is a transaction of the layout
// Plain that adds.
func (x exchange) counts() bool {
	return plain.Adds(x) || slices.ContainsFunc(counting(), func(p program) bool { return x.runs(p) })
}

// runs reports whether x runs a program.
func (x exchange) runs(p program) bool {
	return len(x[0]) > 1 && slices.Contains([]string{p.function, p.Name(), p.Text()}, x[0][1])
}

// undo returns the exchange that takes back the hits of x, nil if x has not counted.
func (x exchange) undo(of outcome) exchange {
	if !x.counts() {
		return nil
	} else if len(x) > 1 {
		return plain.Undo(x)
	}
	last := len(x[0]) - 1
	r := request(x[0][last])
	if !r.takeBack(of) {
		return nil
	}
	return exchange{append(slices.Clone(x[0][:last]), string(r))}
}

// byText turns a run of a program into a run of its text, which the server always
// knows, or which it runs without memory; nil if there is no other way.
func (x exchange) byText(of outcome) exchange {
	for _, p := range counting() {
		text := p.Text()
		if of == noMemory {
			text = p.freeingText()
		}
		if x.runs(p) && (of == noMemory || of == unknownProgram) {
			return exchange{append([]string{"eval", text}, x[0][2:]...)}
		}
	}
	return nil
}

// send writes x.
func (x exchange) send(w io.Writer) error {
	var b []byte
	for _, words := range x {
		b = append(fmt.Appendf(b, "*%d\r\n", len(words)), bulk(words...)...)
	}
	_, err := w.Write(b)
	return err
}

// takeBack turns a request that counts into the request that takes the same hits back,
// and returns false for any other. The answer of a step does not name the soft keys
// without room: where not all soft keys had room, no soft key is undone. Soft keys
// deny no one, and count too much rather than too little.
func (r request) takeBack(of outcome) bool {
	if len(r) < requestHead || r[modeAt] != modeCount {
		return false
	}
	r[modeAt] = modeBack
	switch {
	case of == countedPart:
		r[modeAt] = modePartBack
	case of > countedTimes:
		times := request{}
		times.uint(uint64(of-countedTimes), timesBytes)
		copy(r[len(r)-timesBytes:], times)
	}
	r.setDeadline(0)
	return true
}

// outcome is the effect of a command on hits, by the answer.
type outcome int64

const (
	notCounted     outcome = iota // a denial, an error
	counted                       // added, or taken back
	countedPart                   // added, but not to all soft keys
	tooLate                       // not added, since the deadline had passed
	unknownProgram                // the server does not have the function or script, and has done nothing
	noMemory                      // the server is full, and has done nothing
	countedTimes                  // countedTimes+n: added n times
)

// outcomes are the outcomes by the first byte of an answer of a single string.
var outcomes = map[byte]outcome{addedByte: counted, partByte: countedPart, lateByte: tooLate}

// outcomeOf returns the outcome by an answer that the client has read.
func outcomeOf(answer any) outcome {
	switch answer := answer.(type) {
	case []any, int64:
		return counted
	case string:
		return outcomeIn(answer)
	}
	return notCounted
}

// outcomeIn returns the outcome by the beginning of an answer of a single string.
func outcomeIn(head string) outcome {
	switch {
	case head == "":
		return notCounted
	case head[0] == timesByte && len(head) > timesBytes:
		return countedTimes + outcome(number(head[1:1+timesBytes]))
	}
	return outcomes[head[0]]
}

// readOutcome reads up to the end of the answers to x.
func (x exchange) readOutcome(r *bufio.Reader) (of outcome, err error) {
	var s shape
	for i := 0; i < len(x) && err == nil; i++ {
		of, s, err = readReply(r)
	}
	if err == nil && !x.answered(s) {
		err = errShape
	}
	return of, err
}

// readReply reads up to the end of the next answer. Notices that the server sends
// unasked are passed over.
func readReply(r *bufio.Reader) (of outcome, s shape, err error) {
	line, head := []byte(">"), ""
	for err == nil && line[0] == '>' {
		line, head, err = readValue(r, 0)
	}
	if err != nil {
		return notCounted, s, err
	}
	s.kind = line[0]
	s.n, _ = strconv.Atoi(string(line[1:])) // readValue has read it
	switch {
	case s.kind == ':', s.kind == '*':
		of = counted
	case s.kind == '$':
		if of = outcomeIn(head); head != "" {
			s.first = head[0]
		}
	case bytes.HasPrefix(line, []byte("-ERR Function not found")), bytes.HasPrefix(line, []byte("-NOSCRIPT ")):
		of = unknownProgram
	case bytes.HasPrefix(line, []byte("-OOM ")):
		of = noMemory
	}
	return of, s, nil
}

const maxReply = 64 << 20

var errProtocol = errors.New("not an answer of a Redis server")

// readValue reads a value of version 2 or 3 of the protocol, and returns its first line,
// "_" for none, and as much of a string as outcomeIn needs.
func readValue(r *bufio.Reader, depth int) (line []byte, head string, err error) {
	part, err := r.ReadSlice('\n')
	if err != nil {
		return nil, "", err
	}
	if len(part) < 3 || depth > 8 {
		return nil, "", errProtocol
	}
	line = bytes.Clone(part[:min(len(part)-2, 64)])
	if bytes.IndexByte([]byte("+-:_#,("), line[0]) >= 0 {
		return line, "", nil
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n > maxReply {
		return nil, "", errProtocol
	}
	if n < 0 {
		return []byte("_"), "", nil
	}
	switch line[0] {
	case '$', '=', '!':
		begin := make([]byte, min(n, 1+timesBytes))
		if _, err = io.ReadFull(r, begin); err != nil {
			return nil, "", err
		}
		_, err = io.CopyN(io.Discard, r, int64(n-len(begin)+2))
		return line, string(begin), err
	case '%', '|':
		n *= 2
	case '*', '>', '~':
	default:
		return nil, "", errProtocol
	}
	for range n {
		if _, _, err = readValue(r, depth+1); err != nil {
			return nil, "", err
		}
	}
	if line[0] == '|' { // attributes of the next value
		return readValue(r, depth)
	}
	return line, "", nil
}
