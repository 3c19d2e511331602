package redis

import (
	"errors"
	"strconv"
)

// shape describes an answer as far as its request alone decides it. An answer of another
// shape has lost a part, or has swallowed the next answer, and each answer after it on the
// connection belongs to another request: a denied call would be reported as admitted, and
// hits that were never counted would be undone.
type shape struct {
	kind  byte // as the protocol marks it: ':' a number, '*' a list, '$' a string
	n     int  // elements of the list, or bytes of the string
	first byte // of the string
}

var errShape = errors.New("an answer of the wrong shape, which makes all later answers on its connection worthless")

// shapeOf returns the shape of an answer that the client has read.
func shapeOf(answer any) (s shape) {
	switch answer := answer.(type) {
	case int64:
		s.kind = ':'
	case []any:
		s.kind, s.n = '*', len(answer)
	case string:
		if s.kind, s.n = '$', len(answer); s.n > 0 {
			s.first = answer[0]
		}
	}
	return s
}

// answers reports whether s is of an answer to a request with so many keys.
func (s shape) answers(p program, keys int, r request) bool {
	switch all := scripts(); p.Name() {
	case all.take.Name():
		return s.late() || s.answersTake(keys, r)
	case all.do.Name():
		return s.late() || s.answersDo(keys, r)
	}
	return s.kind == ':' // of forget.lua
}

func (s shape) late() bool { return s.kind == '$' && s.first == lateByte && s.n == 1+timeBytes }

func (s shape) answersTake(roots int, r request) bool {
	windows, at := 0, requestHead
	for range roots {
		n := r.at(at+28, 2)
		windows, at = windows+n, at+30+13*n
	}
	least := 1 + windows*sumBytes + roots*wholeBytes
	switch {
	case r[modeAt] >= modeBack:
		return s.kind == '$' && s.n == 1
	case s.kind == ':':
		return roots == 1 && windows == 1
	case s.kind == '*':
		return roots > 1 && s.n == windows+1
	}
	return s.kind == '$' && least <= s.n && s.n <= least+windows*wholeBytes+timesBytes+timeBytes
}

func (s shape) answersDo(roots int, r request) bool {
	want, at := 0, requestHead+7
	if r[modeAt] == modeCount && r.at(requestHead, 7) > 0 {
		want = 1 // the time
	}
	for range roots {
		changes, tells, leaves := r.at(at+20, 2), r.at(at+22, 2), r.at(at+25, 2)
		want += tells + r.at(at+24, 1) + leaves
		at += 27 + 6*(changes+2*tells+leaves)
	}
	return s.kind == '*' && s.n == want
}

// at returns the number in the bytes from i on; 0 behind the end.
func (r request) at(i, bytes int) int {
	if len(r) < i+bytes {
		return 0
	}
	return int(number(string(r[i : i+bytes])))
}

// answered reports whether s can be of an answer to x. An error of the server can be, and
// the answer to a transaction is not checked.
func (x exchange) answered(s shape) bool {
	if len(x) > 1 || s.kind == '-' {
		return true
	}
	for _, p := range counting() {
		if x.runs(p) {
			keys, _ := strconv.Atoi(x[0][2])
			return s.answers(p, keys, request(x[0][len(x[0])-1]))
		}
	}
	return true
}
