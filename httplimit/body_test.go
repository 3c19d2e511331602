package httplimit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

// counted counts the bytes read of a body, and its Close.
type counted struct {
	io.Reader
	read, closed int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

func (c *counted) Close() error { c.closed++; return nil }

func countedRequest(contentType, body string) (*http.Request, *counted) {
	c := &counted{Reader: strings.NewReader(body)}
	r := httptest.NewRequest("POST", "/?q=query", nil)
	r.Header.Set("Content-Type", contentType)
	r.Body, r.ContentLength = c, int64(len(body))
	return r, c
}

const formType = "application/x-www-form-urlencoded"

func readBody(r *http.Request) (string, error) {
	body, err := io.ReadAll(r.Body)
	return string(body), err
}

func TestSeveralValuesReadOnce(t *testing.T) {
	const body = `{"a":1,"b":"x&y=z"}` // JSON, and a form too
	r, c := countedRequest(formType, body)
	q := newRequest(r, DefaultMaxBody)
	for _, row := range []struct {
		name string
		v    Value
		want string
	}{
		{"a form field", Form("y"), `z"}`},
		{"another", Form("q"), "query"},
		{"a JSON field", JSON("a"), "1"},
		{"another", JSON("b"), "x&y=z"},
		{"the body itself, to the end", readBody, body},
		{"as much as it likes", func(r *http.Request) (string, error) {
			b, err := bufio.NewReaderSize(r.Body, 16).ReadByte()
			return string(b), err
		}, "{"},
		{"FormValue", func(r *http.Request) (string, error) { return r.FormValue("y"), nil }, `z"}`},
		{"FormValue again, and a form field after it", func(r *http.Request) (string, error) {
			_ = r.FormValue("y")
			return Form("y")(r)
		}, `z"}`},
		{"a body of its own around it", func(r *http.Request) (string, error) {
			r.Body = http.MaxBytesReader(nil, r.Body, 100)
			return Form("y")(r)
		}, `z"}`},
		{"closed", func(r *http.Request) (string, error) { return "", r.Body.Close() }, ""},
		{"a request that it changes", func(r *http.Request) (string, error) {
			r.Method, r.URL, r.Form, r.Body = "GET", &url.URL{RawQuery: "y=1"}, url.Values{"y": {"2"}}, http.NoBody
			return "", nil
		}, ""},
		{"FormValue after all that", func(r *http.Request) (string, error) { return r.FormValue("y"), nil }, `z"}`},
		{"a form field after all that", Form("y"), `z"}`},
		{"the body after all that", readBody, body},
	} {
		require.Equal(t, row.want, try.To(q.value(row.v))(t), row.name)
	}
	require.Equal(t, len(body), c.read)
	require.Zero(t, c.closed)

	// It was parsed once, too: what nobody parses again may change.
	form, _, _ := q.parseForm()
	form["y"] = []string{"changed"}
	require.Equal(t, "changed", try.To(q.value(Form("y")))(t))

	next := q.next(noContext)
	require.Nil(t, q.data, "it is the handler's alone")
	require.Nil(t, next.Form, "the handler is to parse it")
	require.Nil(t, r.Form)
	require.Equal(t, body, try.To(readBody(next))(t))
	require.Equal(t, len(body), c.read)
}

// A Value of an application's own may decode what Form and JSON refuse.
func TestEncodedBodyIsReadAsItIs(t *testing.T) {
	r, _ := countedRequest(formType, "a=1")
	r.Header.Set("Content-Encoding", "rot13")
	q := newRequest(r, DefaultMaxBody)
	require.ErrorContains(t, try.Err(q.value(Form("a"))), "compressed")
	require.Equal(t, "a=1", try.To(q.value(readBody))(t))
}

func TestRequestWithoutABody(t *testing.T) {
	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		r, _ := countedRequest(formType, "")
		r.Body = none
		q := newRequest(r, DefaultMaxBody)
		for _, v := range []Value{Form("x"), JSON("x"), readBody} {
			require.Empty(t, try.To(q.value(v))(t))
		}
		require.Same(t, r, q.next(noContext))
		require.Equal(t, none, r.Body)
	}
}

func TestBodyBound(t *testing.T) {
	for _, c := range []struct {
		name             string
		maxBody, size    int64
		announced        int64 // -1: not at all
		status, consumed int
	}{
		{"below", 100, 99, 99, 0, 99},
		{"at it", 100, 100, 100, 0, 100},
		{"at it, unannounced", 100, 100, -1, 0, 100},
		{"over, and announced: not a byte is read", 100, 101, 101, 413, 0},
		{"over, unannounced: one byte too many", 100, 1 << 20, -1, 413, 101},
		{"over, and announced as less", 100, 1 << 20, 10, 413, 101},
		{"the default", DefaultMaxBody, 1 << 20, 1 << 20, 0, 1 << 20},
		{"over the default", DefaultMaxBody, 1<<20 + 1, -1, 413, 1<<20 + 1},
		{"as large as numbers are", 1<<63 - 1, 1 << 20, 1 << 20, 0, 1 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := strings.Repeat("x", int(c.size))
			r, source := countedRequest("", body)
			r.ContentLength = c.announced
			q := newRequest(r, c.maxBody)
			for range 2 {
				text, err := q.value(readBody)
				if c.status == 0 {
					require.NoError(t, err)
					require.Len(t, text, len(body))
				} else {
					var e *ValueError
					require.ErrorAs(t, err, &e)
					require.Equal(t, c.status, e.Status)
					require.Equal(t, fmt.Sprintf("httplimit: request body: the request is larger than %d bytes", q.maxBody), e.Error())
					require.Empty(t, text)
				}
				require.Equal(t, c.consumed, source.read)
			}
			got := try.To(readBody(q.next(noContext)))(t)
			require.Equal(t, len(body), len(got), "the handler reads all of it even so")
			require.Equal(t, c.announced, q.next(noContext).ContentLength)

			r, source = countedRequest("", body)
			r.ContentLength = c.announced
			newRequest(r, c.maxBody).discard()
			require.Equal(t, c.consumed, source.read, "what no one reads is read as far")
		})
	}
}

// An announced length costs the client nothing, so the middleware allocates nothing
// for an announcement.
func TestAnnouncedLengthIsNotAllocated(t *testing.T) {
	r, _ := countedRequest("", "little")
	r.ContentLength = DefaultMaxBody
	q := newRequest(r, DefaultMaxBody)
	try.To(q.bytes())(t)
	require.Less(t, cap(q.data), 20<<10)
}

// errOnce fails once, and succeeds afterwards.
type errOnce struct{ err error }

func (e *errOnce) Read([]byte) (int, error) {
	err := e.err
	e.err = io.EOF
	return 0, err
}

// A body that ends in an error does so for the handler as well, after the same
// bytes and with the same error. In the middle of a part of a multipart form too the
// reader of the parts must not hide the reason.
func TestBodyThatBreaks(t *testing.T) {
	for _, row := range []struct {
		err    error
		status int
		reason string
	}{
		{errors.New("broken"), 400, "the request could not be read"},
		{io.ErrUnexpectedEOF, 400, "the request could not be read"},
		{&http.MaxBytesError{Limit: 6}, 413, "the request is larger than 6 bytes"}, // of an outer handler
		{fmt.Errorf("outer: %w", &http.MaxBytesError{Limit: 6}), 413, "the request is larger than 6 bytes"},
	} {
		for _, of := range []struct {
			v                         Value
			contentType, text, source string
		}{
			{Form("a"), formType, "a=1&b=", `form field "a"`},
			{Form("a"), "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ntext", `form field "a"`},
			{JSON("a"), formType, "a=1&b=", `JSON field "a"`},
			{readBody, formType, "a=1&b=", "request body"},
		} {
			r, source := countedRequest(of.contentType, "")
			source.Reader = io.MultiReader(strings.NewReader(of.text), &errOnce{err: row.err})
			r.ContentLength = -1
			q := newRequest(r, DefaultMaxBody)
			_, err := q.value(of.v)
			require.Equal(t, &ValueError{row.status, of.source, row.reason, row.err}, err)
			got, err := readBody(q.next(noContext))
			require.Equal(t, of.text, got)
			require.Equal(t, row.err, err)
		}
	}
}

// net/http reads no more of an urlencoded form, so neither the handler would.
func TestFormBeyondNetHTTP(t *testing.T) {
	for size, status := range map[int]int{10 << 20: 0, 10<<20 + 1: 413} {
		r, _ := countedRequest(formType, "a=1&"+strings.Repeat("x", size-4))
		text, err := newRequest(r, 20<<20).value(Form("a"))
		if status == 0 {
			require.NoError(t, err)
			require.Equal(t, "1", text)
			continue
		}
		var e *ValueError
		require.ErrorAs(t, err, &e)
		require.Equal(t, status, e.Status)
		require.Equal(t, "the request is larger than 10485760 bytes", e.Reason)
	}
}

func TestCloseOfTheHandlersBody(t *testing.T) {
	r, source := countedRequest(formType, "a=1")
	q := newRequest(r, DefaultMaxBody)
	try.To(q.value(Form("a")))(t)
	require.Zero(t, source.closed)
	next := q.next(noContext)
	require.NoError(t, next.Body.Close())
	require.Equal(t, 1, source.closed)
	require.ErrorIs(t, try.Err(readBody(next)), http.ErrBodyReadAfterClose)
}

// Close may come while another goroutine reads, as a Transport's does.
func TestCloseWhileReading(t *testing.T) {
	for range 100 {
		r, _ := countedRequest("", strings.Repeat("x", 1000))
		q := newRequest(r, DefaultMaxBody)
		try.To(q.value(readBody))(t)
		body := q.next(noContext).Body
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := io.Copy(io.Discard, iotest.OneByteReader(body)); err != nil && !errors.Is(err, http.ErrBodyReadAfterClose) {
				t.Error(err)
			}
		})
		_ = body.Close()
		wg.Wait()
	}
}

// A form's files stay in memory, as FormValue keeps them; what is beyond that is
// removed.
func TestTemporaryFilesOfForm(t *testing.T) {
	dir := t.TempDir()
	file := func(size int) *http.Request {
		r, _ := countedRequest("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n"+strings.Repeat("x", size)+
			"\r\n--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n")
		return r
	}
	t.Setenv("TMPDIR", dir+"/missing")
	text := try.To(newRequest(file(1000000), DefaultMaxBody).value(Form("a")))(t)
	require.Equal(t, "1", text)

	t.Setenv("TMPDIR", dir)
	text = try.To(newRequest(file(formMemory+1), 64<<20).value(Form("a")))(t)
	require.Equal(t, "1", text)
	require.Empty(t, try.To(os.ReadDir(dir))(t))
}

// Files of a form that an outer handler has parsed are its own.
func TestTemporaryFilesOfOthers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r, _ := countedRequest("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n"+strings.Repeat("x", 1000)+"\r\n--b--\r\n")
	require.NoError(t, r.ParseMultipartForm(0))
	q := newRequest(r, DefaultMaxBody)
	for _, v := range []Value{Form("a"), readBody} {
		try.To(q.value(v))(t)
	}
	require.NotSame(t, r, q.next(noContext))
	removeFiles(q.next(noContext), r)
	f, err := r.MultipartForm.File["file"][0].Open()
	require.NoError(t, err, "it is there yet")
	require.IsType(t, (*os.File)(nil), f)
	require.NoError(t, f.Close())
	require.NoError(t, r.MultipartForm.RemoveAll())
}

// Whatever is read before it, and however, the handler reads the bytes and the
// end that the client sent, in pieces of any size; and no more is read for a
// Value than the bound and a byte.
func FuzzBody(f *testing.F) {
	f.Add([]byte("a=1&b=2"), int64(100), int64(7), uint8(0), uint8(3), uint8(0))
	f.Add([]byte(`{"a":"x"}`), int64(3), int64(-1), uint8(1), uint8(1), uint8(1))
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--"), int64(50), int64(-1), uint8(2), uint8(7), uint8(2))
	f.Add([]byte(""), int64(1), int64(0), uint8(15), uint8(0), uint8(0))
	f.Add(bytes.Repeat([]byte("x"), 1500), int64(0), int64(50000), uint8(12), uint8(255), uint8(1))
	ends := []error{nil, io.ErrUnexpectedEOF, &http.MaxBytesError{Limit: 7}}
	types := []string{"", formType, "multipart/form-data; boundary=b", "application/json"}
	f.Fuzz(func(t *testing.T, body []byte, maxBody, announced int64, flags, piece, end uint8) {
		maxBody = 1 + max(maxBody, -maxBody)%(1<<20)
		want := ends[int(end)%len(ends)]
		source := &counted{Reader: bytes.NewReader(body)}
		if want != nil {
			source.Reader = io.MultiReader(source.Reader, iotest.ErrReader(want))
		}
		if flags&16 != 0 {
			source.Reader = iotest.DataErrReader(source.Reader)
		}
		if flags&32 != 0 {
			source.Reader = iotest.HalfReader(source.Reader)
		}
		r := &http.Request{Method: "POST", URL: &url.URL{}, Header: http.Header{"Content-Type": {types[flags&3]}}, Body: source, ContentLength: announced}
		q := newRequest(r, maxBody)
		limit := q.maxBody
		for i, v := range []Value{Form("a"), JSON("a"), readBody} {
			if flags>>(2+i)&1 == 0 {
				text, err := q.value(v)
				require.True(t, err == nil || text == "")
				require.LessOrEqual(t, int64(source.read), limit+1)
			}
		}
		next := q.next(noContext)
		var got []byte
		var err error
		for buf := make([]byte, int(piece)+1); err == nil; {
			var n int
			n, err = next.Body.Read(buf)
			got = append(got, buf[:n]...)
		}
		require.Equal(t, string(body), string(got))
		if want == nil {
			want = io.EOF
		}
		require.Equal(t, want, err)
		_, err = next.Body.Read(make([]byte, 1))
		require.Equal(t, want, err, "and again")
	})
}

// Header and Cookie cost nothing but the copy of the request.
func TestValueAllocations(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Token", "t0k3n")
	r.Header.Set("Cookie", "lang=en; sid=5e55; theme=dark")
	for name, v := range map[string]Value{"header": Header("X-Token"), "no header": Header("X"), "cookie": Cookie("sid"), "no cookie": Cookie("x")} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = v(r) }), name)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
			q := newRequest(r, DefaultMaxBody)
			_, _ = q.value(v)
			_ = q.next(noContext)
		}), 1.0, name)
	}
}
