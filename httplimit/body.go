package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// request is a request whose body several Values and then the handler can read:
//
//	q := newRequest(r, maxBody)
//	text, err := q.value(v) // as often as there are Values
//	inner := q.next(noContext)
//	defer removeFiles(inner, r)
//	next.ServeHTTP(w, inner)
//
// The body is read whole when the first Value reads, and not at all if no Value
// reads. Of r only the Body changes, by being read. For one goroutine.
type request struct {
	in      *http.Request
	maxBody int64
	w       http.ResponseWriter // for the deadline of the body
	all     *bodies             // nil: no bounds but maxBody
	held    atomic.Int64        // of all
	sealed  bool                // the body is not to be read yet
	refused bool                // the body has half of the room of all
	asked   bool                // a Value has asked for the body
	lacks   string              // the part without text, or its kind, for which a feature is missing
	view    http.Request        // the copy for a Value
	cursor  viewBody            // the Body of view

	known bool // data and err are: there is no body, or it was asked for and may be read
	data  []byte
	err   error // why data is not all of the body
	tail  error // the error at the end of reading; nil: there is more
	read  bool  // whether in.Body was read

	parsed  bool
	form    url.Values
	files   map[string][]*multipart.FileHeader
	formErr error
}

// newRequest reads nothing yet.
func newRequest(r *http.Request, maxBody int64) *request {
	return &request{in: r, maxBody: min(maxBody, math.MaxInt64-1), known: !hasBody(r)}
}

// value calls v on a fresh copy of the request.
func (q *request) value(v Value) (string, error) {
	q.view = *q.in
	q.cursor = viewBody{q: q}
	q.view.Body = &q.cursor
	defer removeFiles(&q.view, q.in)
	return v(&q.view)
}

// noContext has a request go on with its own context.
var noContext context.Context

// next is the request for the handler: the original if its body was not read and ctx is
// noContext, else a copy, with ctx unless it is that. The body of the copy begins again, with
// all that was read, even after an error, and then the rest. No Value may run
// afterwards.
func (q *request) next(ctx context.Context) *http.Request {
	switch {
	case ctx == noContext && !q.read:
		return q.in
	case ctx == noContext:
		ctx = q.in.Context()
	}
	out := q.in.WithContext(ctx) // now, after reading: net/http may have found trailers
	if q.read {
		out.Body = &replay{q: q, data: q.data, tail: q.tail, body: q.in.Body}
	}
	q.data, q.form, q.files = nil, nil, nil // the handler may take long
	return out
}

// inBody is a Value that find reads from the body of a request.
func inBody(source string, find func(*request) (string, error)) Value {
	return func(r *http.Request) (string, error) {
		var q *request
		if b, ok := r.Body.(*viewBody); ok {
			q = b.q
		} else {
			q = newRequest(r, DefaultMaxBody)
			defer func() { r.Body = q.next(noContext).Body }()
		}
		text, err := find(q)
		if e, ok := err.(*ValueError); ok && e.Source == wholeBody {
			e := *e
			e.Source = source
			return "", &e
		}
		return text, err
	}
}

// wholeBody is the Source of errors outside of any Value.
const wholeBody = "request body"

// bytes returns the whole body.
func (q *request) bytes() ([]byte, error) {
	q.asked = true
	switch {
	case q.known:
	case q.in.ContentLength > q.maxBody:
		q.known, q.err = true, tooLarge(q.maxBody, nil)
	case q.sealed:
		return nil, errSealed
	default:
		q.known, q.read = true, true
		q.err = q.readInTime()
	}
	return q.data, q.err
}

// readInTime reads the body into data. The error blames the client, but for a body without
// room.
func (q *request) readInTime() error {
	done := q.deadline()
	full := q.readAll()
	late := errors.Is(q.tail, os.ErrDeadlineExceeded)
	if done() && q.tail == io.EOF {
		late = true // by a hair, and the deadline stands
	}
	var limit *http.MaxBytesError
	switch {
	case full:
		return &ValueError{http.StatusServiceUnavailable, wholeBody, "the service is busy at the moment", errBodies}
	case int64(len(q.data)) > q.maxBody:
		return tooLarge(q.maxBody, nil)
	case late:
		return &ValueError{http.StatusRequestTimeout, wholeBody, "the request did not arrive in time", q.tail}
	case q.tail == io.EOF:
		return nil
	case errors.As(q.tail, &limit):
		return tooLarge(limit.Limit, q.tail)
	}
	return &ValueError{http.StatusBadRequest, wholeBody, "the request could not be read", q.tail}
}

// discard reads the body as bytes does, for no one, and holds nothing: a body that
// bytes would not read stays unread.
func (q *request) discard() {
	if q.known || q.in.ContentLength > q.maxBody {
		return
	}
	q.known, q.read = true, true
	done := q.deadline()
	_, q.tail = io.CopyN(io.Discard, q.in.Body, q.maxBody+1)
	done()
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

func tooLarge(limit int64, err error) error {
	return &ValueError{http.StatusRequestEntityTooLarge, wholeBody, fmt.Sprintf("the request is larger than %d bytes", limit), err}
}

// readAll reads until the body ends, or has a byte more than maxBody, or full tells
// that there is no room for more. tail is nil only if the body has not ended. The
// buffer grows with what has come, since announcing a length costs a client nothing.
func (q *request) readAll() (full bool) {
	const first = 4 << 10
	limit, announced := q.maxBody+1, q.in.ContentLength
	q.data = make([]byte, 0, min(max(announced, 511)+1, first, limit))
	for {
		if len(q.data) == cap(q.data) {
			size := 2 * int64(cap(q.data))
			if announced >= int64(cap(q.data)) { // and a byte, for the end
				size = min(size, announced+1)
			}
			size = min(size, limit)
			if !q.hold(size) {
				return true
			}
			q.data = append(make([]byte, 0, size), q.data...)
		}
		var n int
		n, q.tail = q.in.Body.Read(q.data[len(q.data):cap(q.data)])
		q.data = q.data[:len(q.data)+n]
		if q.tail != nil || int64(len(q.data)) == limit {
			return false
		}
	}
}

// plain is the whole body unless it is encoded. No one knows here whether the
// handler decodes an encoded body, and compressed bytes would pass for a form
// without the field. A middleware that decodes bodies stands outside of this
// middleware, and drops the header.
func (q *request) plain() ([]byte, error) {
	for _, line := range q.in.Header["Content-Encoding"] {
		if line != "" && !strings.EqualFold(line, "identity") {
			return nil, &ValueError{http.StatusUnsupportedMediaType, wholeBody, "the request must not be compressed", nil}
		}
	}
	return q.bytes()
}

// viewBody is the body as a Value reads it, from the beginning.
type viewBody struct {
	q     *request
	plain bool // an encoded body is an error
	at    int
	err   error // of a Read, unless io.EOF

	source, text string // what a Value of this package has read last, see named
}

var _ io.ReadCloser = (*viewBody)(nil)

func (b *viewBody) Read(p []byte) (int, error) {
	read := b.q.bytes
	if b.plain {
		read = b.q.plain
	}
	data, err := read()
	if err != nil {
		b.err = err
		return 0, err
	}
	if b.at == len(data) {
		return 0, io.EOF
	}
	n := copy(p, data[b.at:])
	b.at += n
	return n, nil
}

// Close does nothing: the handler reads the body yet.
func (b *viewBody) Close() error { return nil }

// replay reads what has been read of body, and goes on as body does. Close may
// be called while Read runs, as of net/http's own bodies.
type replay struct {
	q      *request // which holds data
	data   []byte
	tail   error // the error after data; nil: the rest of body follows
	body   io.ReadCloser
	closed atomic.Bool
}

var _ io.ReadCloser = (*replay)(nil)

func (b *replay) Read(p []byte) (int, error) {
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case len(b.data) > 0:
		n := copy(p, b.data)
		if b.data = b.data[n:]; len(b.data) == 0 {
			b.data = nil
			b.q.release()
		}
		return n, nil
	case b.tail != nil:
		return 0, b.tail
	}
	return b.body.Read(p)
}

func (b *replay) Close() error {
	b.closed.Store(true)
	return b.body.Close()
}

// Defaults of a Config for bodies.
const (
	DefaultMaxBody      = 1 << 20  // of Config.MaxBody, in bytes: 1 MiB
	DefaultMaxBodyTotal = 64 << 20 // of Config.MaxBodyTotal, in bytes: 64 MiB
	DefaultBodyTimeout  = 30 * time.Second
)

// freeBody is the number of bytes of each body that Config.MaxBodyTotal does not
// bound. A bound for all bytes, or for the number of bodies, would be used up by as
// many slow clients, and then refuse every form.
const freeBody = 16 << 10

// errBodies is the reason why a body is not read to its end: too many bytes are held.
var errBodies = errors.New("httplimit: the bodies of other requests hold Config.MaxBodyTotal bytes")

// errSealed is the error of reading a body that is not to be read yet.
var errSealed = errors.New("httplimit: the body is read when the rules that need no body would admit the request")

// bodies bounds the bodies that are read for the Values of a middleware.
type bodies struct {
	total   int64         // bytes beyond the free ones, of all bodies together
	timeout time.Duration // of each body; zero or less: unbounded
	held    atomic.Int64  // at most total
}

// hold makes q hold a buffer of size bytes. ok is false beyond the bound.
func (q *request) hold(size int64) (ok bool) {
	if q.all == nil {
		return true
	}
	more, total := max(0, size-freeBody-q.held.Load()), q.all.total
	if q.refused {
		total /= 2 // else clients over their limits would leave no room to others
	}
	if more > 0 && q.all.held.Add(more) > total {
		q.all.held.Add(-more)
		return false
	}
	q.held.Add(more)
	return true
}

// release gives back what q holds. Many goroutines may call release at once.
func (q *request) release() {
	if held := q.held.Swap(0); held > 0 {
		q.all.held.Add(-held)
	}
}

// deadline bounds the time of reading the body until done is called, which reports
// whether the time was over and a deadline was set. Deadlines of the server and of outer
// handlers stand: only when the time is over, a deadline ends the reading, and stays,
// since the server must not wait for the rest of the body either.
func (q *request) deadline() (done func() (late bool)) {
	if q.all == nil || q.all.timeout <= 0 {
		return func() bool { return false }
	}
	var err error
	over := make(chan struct{})
	timer := time.AfterFunc(q.all.timeout, func() {
		defer close(over)
		err = http.NewResponseController(q.w).SetReadDeadline(time.Now()) // else nothing bounds the time here
	})
	return func() bool {
		if timer.Stop() {
			return false
		}
		<-over // the connection is the next request's soon
		return err == nil
	}
}
