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
	"slices"
	"strings"
	"sync/atomic"
)

// DefaultMaxBody is the default of Config.MaxBody, in bytes: 1 MiB.
const DefaultMaxBody = 1 << 20

// request is a request whose body several Values and then the handler can read:
//
//	q := newRequest(r, maxBody)
//	text, err := q.value(v) // as often as there are Values
//	inner := q.next()
//	defer removeFiles(inner, r)
//	next.ServeHTTP(w, inner)
//
// The body is read whole when the first Value reads, and not at all if no Value
// reads. Of r only the Body changes, by being read. For one goroutine.
type request struct {
	in      *http.Request
	maxBody int64
	view    http.Request // the copy for a Value
	cursor  viewBody     // the Body of view

	known bool // whether data and err are
	data  []byte
	err   error // why data is not all of the body
	tail  error // the error at the end of reading; nil: there is more
	read  bool  // whether in.Body was read
	valid bool  // data is JSON

	parsed  bool
	form    url.Values
	files   map[string][]*multipart.FileHeader
	formErr error

	out *http.Request // the handler's request, if not in
}

// newRequest reads nothing yet. A maxBody of zero or less is DefaultMaxBody.
func newRequest(r *http.Request, maxBody int64) *request {
	if maxBody <= 0 {
		maxBody = DefaultMaxBody
	}
	return &request{in: r, maxBody: min(maxBody, math.MaxInt64-1)}
}

// value calls v on a fresh copy of the request.
func (q *request) value(v Value) (string, error) {
	q.view = *q.in
	q.cursor = viewBody{q: q}
	q.view.Body = &q.cursor
	defer removeFiles(&q.view, q.in)
	return v(&q.view)
}

// next is the request for the handler: the original if its body was not read,
// else a copy whose body begins again, with all that was read, even after an
// error, and then the rest. No Value may run afterwards.
func (q *request) next() *http.Request {
	if !q.read {
		return q.in
	}
	return q.nextWith(q.in.Context())
}

// nextWith is next with another context, and always a copy.
func (q *request) nextWith(ctx context.Context) *http.Request {
	q.nextIn(new(http.Request), ctx)
	return q.out
}

// nextIn is nextWith for a copy in memory of the caller.
func (q *request) nextIn(out *http.Request, ctx context.Context) {
	body := q.in.Body
	if q.out != nil {
		body = q.out.Body // a second handler goes on where the first left off
	} else if q.read {
		body = &replay{data: q.data, tail: q.tail, body: body}
	}
	*out = *q.in.WithContext(ctx) // now, after reading: net/http may have found trailers
	out.Body = body
	q.out = out
	q.data, q.form, q.files = nil, nil, nil // the handler may take long
}

// removeFiles removes the temporary files of a form that was parsed in a copy:
// net/http's server removes the files of its own request only. To be called for the
// request of a handler when the handler has returned. The form of a copy that a
// handler makes is out of reach.
func removeFiles(c, original *http.Request) {
	if c.MultipartForm != nil && c.MultipartForm != original.MultipartForm {
		_ = c.MultipartForm.RemoveAll() // as the server: there is nobody to tell
	}
}

// inBody is a Value that find reads from the body of a request.
func inBody(source string, find func(*request) (string, error)) Value {
	return func(r *http.Request) (string, error) {
		var q *request
		if b, ok := r.Body.(*viewBody); ok {
			q = b.q
		} else {
			q = newRequest(r, 0)
			defer func() { r.Body = q.next().Body }()
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

// bytes is the whole body.
func (q *request) bytes() ([]byte, error) {
	if q.known {
		return q.data, q.err
	}
	q.known = true
	if q.in.Body == nil || q.in.Body == http.NoBody {
		return nil, nil
	}
	if q.in.ContentLength > q.maxBody {
		q.err = tooLarge(q.maxBody, nil)
		return q.data, q.err
	}
	q.read = true
	q.data, q.tail = readUpTo(q.in.Body, q.maxBody+1, q.in.ContentLength)
	var limit *http.MaxBytesError
	switch {
	case int64(len(q.data)) > q.maxBody:
		q.err = tooLarge(q.maxBody, nil)
	case q.tail == io.EOF:
	case errors.As(q.tail, &limit):
		q.err = tooLarge(limit.Limit, q.tail)
	default:
		q.err = &ValueError{http.StatusBadRequest, wholeBody, "the body could not be read", q.tail}
	}
	return q.data, q.err
}

func tooLarge(limit int64, err error) error {
	return &ValueError{http.StatusRequestEntityTooLarge, wholeBody, fmt.Sprintf("the body has more than %d bytes", limit), err}
}

// readUpTo reads until r ends or limit bytes are there. The error is nil only
// if limit came first. The buffer grows with what has come, since announcing a
// length costs a client nothing.
func readUpTo(r io.Reader, limit, announced int64) ([]byte, error) {
	data := make([]byte, 0, min(max(announced, 511), 16<<10)+1)
	for {
		if len(data) == cap(data) {
			data = slices.Grow(data, 1)
		}
		n, err := r.Read(data[len(data):min(int64(cap(data)), limit)])
		data = data[:len(data)+n]
		if err != nil || int64(len(data)) == limit {
			return data, err
		}
	}
}

// plain is the whole body unless it is encoded. Nobody knows here whether the
// handler decodes an encoded body, and compressed bytes would pass for a form
// without the field. A middleware that decodes bodies stands outside of this
// middleware, and drops the header.
func (q *request) plain() ([]byte, error) {
	for _, line := range q.in.Header["Content-Encoding"] {
		if line != "" && !strings.EqualFold(line, "identity") {
			return nil, &ValueError{http.StatusUnsupportedMediaType, wholeBody, "the body has a Content-Encoding, want none", nil}
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
