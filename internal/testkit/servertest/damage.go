package servertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
)

// Damage is a kind of damage to the answers of memcached and Redis on their way to
// a client. A reader that checks the frame of an answer notices each kind but
// [Pieces]: no digit of a count becomes another digit, and no answer is missing as
// a whole, since neither could be told from a true answer.
type Damage uint8

// The kinds of damage.
const (
	Whole  Damage = iota // none
	Flips                // a byte has its highest bit flipped, but no byte of a binary text
	Lies                 // a line tells a wrong length of the text or list after the line
	Cuts                 // the end is missing; then the connection is closed, or the next answer follows
	Pieces               // each byte arrives on its own, as a network may deliver bytes
	Heads                // the first byte of each piece has its highest bit flipped, but no byte of a binary text
)

// Damage makes the server's answers arrive damaged, about every second piece that
// arrives at once or, with [Heads], each, until a call with [Whole]. seed decides which pieces are damaged,
// and where.
func (p *Proxy) Damage(kind Damage, seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.damage, p.random = kind, rand.New(rand.NewPCG(seed, uint64(kind)))
}

// frames follows the frames of the answers on a connection: lines, and texts of a
// length that a line has told.
type frames struct {
	line   []byte // begin of the line under way
	text   int    // bytes of a text to come
	binary bool   // the text is of Redis
}

// maxLine bounds the part of a line that is kept: no line with a length is longer.
const maxLine = 300

// place is the part of an answer that a byte belongs to.
type place uint8

const (
	inLine   place = iota
	inNumber       // in a line that has only digits so far
	inText
	inBinary
)

// next takes the next byte of the answers, and returns the place of the byte.
func (f *frames) next(b byte) place {
	if f.text > 0 {
		f.text--
		if f.binary {
			return inBinary
		}
		return inText
	}
	at := inLine
	if number := bytes.TrimLeft(f.line, ":"); len(bytes.Trim(number, "0123456789")) == 0 {
		at = inNumber
	}
	if b != '\n' {
		if len(f.line) < maxLine {
			f.line = append(f.line, b)
		}
		return at
	}
	if from, to := lengthIn(f.line); to > from {
		if n, err := strconv.Atoi(string(f.line[from:to])); err == nil && n >= 0 && f.line[0] != '*' {
			f.text, f.binary = n+len("\r\n"), f.line[0] == '$'
		}
	}
	f.line = f.line[:0]
	return at
}

// lengths matches a line with a length: the length of a text of memcached (VALUE key flags
// length, VA length) or of Redis ($length), or of a list (*length).
var lengths = regexp.MustCompile(`^(?:VALUE [^ ]* [^ ]* |VA |[$*])(-?[0-9]+)`)

// lengthIn returns the place of the length in a line, if there is one.
func lengthIn(line []byte) (from, to int) {
	if found := lengths.FindSubmatchIndex(line); found != nil {
		return found[2], found[3]
	}
	return 0, 0
}

// hurt returns the pieces in which an answer arrives, and whether the connection
// ends with them.
func (f *frames) hurt(answer []byte, kind Damage, random *rand.Rand) (pieces [][]byte, end bool) {
	before := *f
	before.line = bytes.Clone(f.line)
	places := make([]place, len(answer))
	for i, b := range answer {
		places[i] = f.next(b)
	}
	whole := [][]byte{answer}
	if kind == Heads && places[0] != inBinary {
		answer[0] ^= 0x80
	}
	if kind == Whole || kind == Heads || random.IntN(2) == 0 {
		return whole, false
	}
	switch kind {
	case Flips:
		for range 100 { // a piece may be within a binary text
			if i := random.IntN(len(answer)); places[i] != inBinary {
				answer[i] ^= 0x80
				break
			}
		}
	case Lies:
		return [][]byte{before.lie(answer, random)}, false
	case Cuts:
		keep := random.IntN(len(answer))
		// The next answer would complete a number to another number, a text by chance,
		// and NOT_ by STORED; an answer that is missing as a whole makes the next
		// answer its own.
		kept := answer[:keep]
		return [][]byte{kept}, keep == 0 || places[keep] != inLine || bytes.HasSuffix(kept, []byte("NOT_")) || random.IntN(2) == 0
	case Pieces:
		pieces = pieces[:0]
		for i := range answer {
			pieces = append(pieces, answer[i:i+1])
		}
		return pieces, false
	}
	return whole, false
}

// lie returns the answer with another length in one of its lines.
func (f *frames) lie(answer []byte, random *rand.Rand) []byte {
	type length struct{ from, to int }
	var all []length
	begin := 0 // of the line
	for i, b := range answer {
		if f.text == 0 && b == '\n' && len(f.line) == i-begin { // the line began in this piece
			if from, to := lengthIn(answer[begin:i]); to > from {
				all = append(all, length{begin + from, begin + to})
			}
		}
		f.next(b)
		if len(f.line) == 0 {
			begin = i + 1
		}
	}
	if len(all) == 0 {
		return answer
	}
	at := all[random.IntN(len(all))]
	n, err := strconv.Atoi(string(answer[at.from:at.to]))
	if err != nil {
		return answer
	}
	wrong := []int{n + 1, n + 2, n - 1, n - 2, 10*n + 1, 0, -1, 1 << 16}
	lie := wrong[random.IntN(len(wrong))]
	if lie == n {
		lie = n + 1
	}
	return bytes.Join([][]byte{answer[:at.from], fmt.Append(nil, lie), answer[at.to:]}, nil)
}
