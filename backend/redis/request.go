package redis

import (
	"encoding/binary"
	"fmt"
	"time"
)

// request is the argument of a script: all input next to the names of the keys.
// A request of take.lua or do.lua begins with a mode, a byte of options, and the deadline in microseconds of the server's
// clock, in seven bytes; a deadline of 0 is none. The scripts say what follows.
type request []byte

// Places in a request.
const (
	modeAt      = 0
	optionsAt   = 1
	deadlineAt  = 2
	requestHead = 9
)

// Modes of a request.
const (
	modeCount    = 0
	modePeek     = 1
	modeBack     = 2 // take back all that the same request has added
	modePartBack = 3 // the same, but not from soft keys
)

// Flags of a root in a request of take.lua.
const (
	sameKey = 1 // the root is of the same key as the root before
	softKey = 2
)

// Options of a request.
const (
	anyLabelOption = 1 // a label may be older than dropped buckets
	exactOption    = 2 // of take.lua: counts are exact though hits are added
	timeOption     = 4 // the answer has the server's time
	missingOption  = 8 // of take.lua: the only root is likely missing, and has room for the hits then

	// of take.lua: the hits are taken several times. How often, at most, is the end of the
	// request, in timesBytes.
	timesOption = 16
)

// begin appends the head, without a deadline.
func (r *request) begin(mode byte, anyLabel, exact bool) {
	var options byte
	if anyLabel {
		options |= anyLabelOption
	}
	if exact {
		options |= exactOption
	}
	*r = append(*r, mode, options)
	r.uint(0, 7)
}

// setDeadline replaces the deadline.
func (r request) setDeadline(micro uint64) {
	for i := range 7 {
		r[deadlineAt+i] = byte(micro >> (8 * (6 - i)))
	}
}

// setTime sets whether the answer has the server's time.
func (r request) setTime(wanted bool) {
	r[optionsAt] &^= timeOption
	if wanted {
		r[optionsAt] |= timeOption
	}
}

func (r *request) uint(n uint64, bytes int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	*r = append(*r, b[8-bytes:]...)
}

func (r *request) index(i int64)      { r.uint(position(i), 6) }
func (r *request) ms(d time.Duration) { r.uint(uint64((d+time.Millisecond-1)/time.Millisecond), 6) }

// First bytes of an answer of a single string.
const (
	deniedByte = 0
	addedByte  = 1
	lateByte   = 2
	partByte   = 3 // added, but not to all soft keys
	timesByte  = 4 // added several times: how often follows, in timesBytes
)

// Bytes of the numbers in such an answer: a sum, a position, and the server's time in
// microseconds.
const (
	sumBytes   = 7
	wholeBytes = 6
	timeBytes  = 7
	timesBytes = 7
)

// answer is an answer of take.lua, read from the first byte on.
type answer struct {
	left  string
	short bool // more was read than there is
}

// next returns the number in the next bytes; 0 where there are no more.
func (a *answer) next(bytes int) uint64 {
	if len(a.left) < bytes {
		a.left, a.short = "", true
		return 0
	}
	n := number(a.left[:bytes])
	a.left = a.left[bytes:]
	return n
}

// number returns the number in at most eight bytes.
func number(s string) uint64 {
	var b [8]byte
	copy(b[8-len(s):], s)
	return binary.BigEndian.Uint64(b[:])
}

// unexpected is the error for an answer that no script of the store gives.
func (s *base) unexpected(answer any) error {
	return fmt.Errorf("%s: an unexpected answer of type %T", s, answer)
}
