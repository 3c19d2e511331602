package httplimit

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// bodyMiddleware does what a middleware does with a request, and nothing else.
func bodyMiddleware(maxBody int64, values []Value, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := newRequest(r, maxBody)
		for _, v := range values {
			text, err := q.value(v)
			if e := (*ValueError)(nil); errors.As(err, &e) {
				http.Error(w, e.Error(), e.Status)
				return
			}
			w.Header().Add("Value", text)
		}
		inner := q.next(noContext)
		defer removeFiles(inner, r)
		next(w, inner)
	}
}

// echo answers with its body.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "handler: "+err.Error(), http.StatusTeapot)
		return
	}
	w.Header().Set("Length", fmt.Sprint(r.ContentLength))
	_, _ = w.Write(body)
}

func startServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// exchange sends raw bytes and returns what comes until the server has answered
// and closed, or until the answer has all of want.
func exchange(t *testing.T, s *httptest.Server, raw string, closeWrite bool) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, raw)
	require.NoError(t, err)
	if closeWrite {
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	}
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(answer)
}

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
		got, err := q.value(row.v)
		require.NoError(t, err, row.name)
		require.Equal(t, row.want, got, row.name)
	}
	require.Equal(t, len(body), c.read)
	require.Zero(t, c.closed)

	// It was parsed once, too: what nobody parses again may change.
	form, _, _ := q.parseForm()
	form["y"] = []string{"changed"}
	text, err := q.value(Form("y"))
	require.NoError(t, err)
	require.Equal(t, "changed", text)

	next := q.next(noContext)
	require.Nil(t, q.data, "it is the handler's alone")
	require.Nil(t, next.Form, "the handler is to parse it")
	require.Nil(t, r.Form)
	got, err := readBody(next)
	require.NoError(t, err)
	require.Equal(t, body, got)
	require.Equal(t, len(body), c.read)
}

// A Value of an application's own may decode what Form and JSON refuse.
func TestEncodedBodyIsReadAsItIs(t *testing.T) {
	r, _ := countedRequest(formType, "a=1")
	r.Header.Set("Content-Encoding", "rot13")
	q := newRequest(r, DefaultMaxBody)
	_, err := q.value(Form("a"))
	require.ErrorContains(t, err, "compressed")
	text, err := q.value(readBody)
	require.NoError(t, err)
	require.Equal(t, "a=1", text)
}

func TestBodyThatNoValueReads(t *testing.T) {
	r, c := countedRequest("application/json", `{"q":"x"}`)
	r.Header.Set("Cookie", "sid=1")
	q := newRequest(r, DefaultMaxBody)
	for _, v := range []Value{Header("x"), Cookie("sid"), BasicUser(), Form("q"), func(r *http.Request) (string, error) { return r.RemoteAddr, nil }} {
		_, err := q.value(v)
		require.NoError(t, err)
	}
	require.Zero(t, c.read)
	require.Same(t, r, q.next(noContext))
	require.Same(t, r.Body, q.next(noContext).Body)
	removeFiles(q.next(noContext), r)
	require.Zero(t, c.closed)

	type key struct{}
	with := q.next(context.WithValue(r.Context(), key{}, 1))
	require.NotSame(t, r, with)
	require.Same(t, r.Body, with.Body)
	require.Equal(t, 1, with.Context().Value(key{}))
	require.Nil(t, r.Context().Value(key{}))

	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		r, _ := countedRequest(formType, "")
		r.Body = none
		q := newRequest(r, DefaultMaxBody)
		for _, v := range []Value{Form("x"), JSON("x"), readBody} {
			text, err := q.value(v)
			require.NoError(t, err)
			require.Empty(t, text)
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
			got, err := readBody(q.next(noContext))
			require.NoError(t, err)
			require.Equal(t, len(body), len(got), "the handler reads all of it even so")
			require.Equal(t, c.announced, q.next(noContext).ContentLength)
		})
	}
}

// An announced length costs the client nothing, so the middleware allocates nothing
// for an announcement.
func TestAnnouncedLengthIsNotAllocated(t *testing.T) {
	r, _ := countedRequest("", "little")
	r.ContentLength = DefaultMaxBody
	q := newRequest(r, DefaultMaxBody)
	_, err := q.bytes()
	require.NoError(t, err)
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
// bytes and with the same error.
func TestBodyThatBreaks(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		err    error
		status int
		reason string
	}{
		{"of itself", broken, 400, "the request could not be read"},
		{"cut off", io.ErrUnexpectedEOF, 400, "the request could not be read"},
		{"at a bound further out", &http.MaxBytesError{Limit: 6}, 413, "the request is larger than 6 bytes"},
		{"at a bound further out, wrapped", fmt.Errorf("outer: %w", &http.MaxBytesError{Limit: 6}), 413, "the request is larger than 6 bytes"},
	} {
		for _, v := range []Value{Form("a"), JSON("a"), readBody} {
			t.Run(c.name, func(t *testing.T) {
				r, source := countedRequest(formType, "")
				source.Reader = io.MultiReader(strings.NewReader("a=1&b="), &errOnce{err: c.err})
				r.ContentLength = -1
				q := newRequest(r, DefaultMaxBody)
				_, err := q.value(v)
				var e *ValueError
				require.ErrorAs(t, err, &e)
				require.Equal(t, c.status, e.Status)
				require.Equal(t, c.reason, e.Reason)
				require.ErrorIs(t, err, c.err)
				require.NotContains(t, err.Error(), "broken")
				got, err := readBody(q.next(noContext))
				require.Equal(t, "a=1&b=", got)
				require.Equal(t, c.err, err)
			})
		}
	}
}

// A multipart form that breaks in the middle of a part is unreadable, not
// malformed: the reader of its parts must not hide the reason.
func TestMultipartThatBreaks(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{{io.ErrUnexpectedEOF, 400}, {&http.MaxBytesError{Limit: 1}, 413}} {
		r, source := countedRequest("multipart/form-data; boundary=b", "")
		source.Reader = io.MultiReader(strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ntext"), iotest.ErrReader(c.err))
		r.ContentLength = -1
		_, err := newRequest(r, DefaultMaxBody).value(Form("a"))
		var e *ValueError
		require.ErrorAs(t, err, &e)
		require.Equal(t, c.status, e.Status)
		require.NotEqual(t, "the form could not be read", e.Reason)
		require.Equal(t, `form field "a"`, e.Source)
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
	_, err := q.value(Form("a"))
	require.NoError(t, err)
	require.Zero(t, source.closed)
	next := q.next(noContext)
	require.NoError(t, next.Body.Close())
	require.Equal(t, 1, source.closed)
	_, err = readBody(next)
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
}

// Close may come while another goroutine reads, as a Transport's does.
func TestCloseWhileReading(t *testing.T) {
	for range 100 {
		r, _ := countedRequest("", strings.Repeat("x", 1000))
		q := newRequest(r, DefaultMaxBody)
		_, err := q.value(readBody)
		require.NoError(t, err)
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

// An outer middleware finds its request unchanged, whatever Values and handler
// do, but for the body, which was read.
func TestOriginalRequest(t *testing.T) {
	r, source := countedRequest(formType, "a=1")
	before := *r
	header, target := r.Header.Clone(), *r.URL
	bodyMiddleware(DefaultMaxBody, []Value{Form("a"), readBody, func(r *http.Request) (string, error) { return r.FormValue("a"), nil }}, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "1", r.FormValue("a"))
		require.Equal(t, "query", r.FormValue("q"))
	})(httptest.NewRecorder(), r)
	require.Equal(t, before, *r)
	require.Same(t, source, r.Body)
	require.Equal(t, header, r.Header)
	require.Equal(t, target, *r.URL)
}

// net/http's server removes the files of its own request only, so those of a
// copy would stay.
func TestTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	files := func() int {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(entries)
	}
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreateFormFile("file", "x")
	require.NoError(t, err)
	_, err = part.Write(bytes.Repeat([]byte("x"), 1000))
	require.NoError(t, err)
	require.NoError(t, w.WriteField("a", "1"))
	require.NoError(t, w.Close())
	toDisk := func(r *http.Request) (string, error) {
		require.NoError(t, r.ParseMultipartForm(0))
		require.Equal(t, 1, files())
		return r.FormValue("a"), nil
	}
	keep := make(chan int, 1)
	for name, values := range map[string][]Value{"a Value's": {toDisk}, "the handler's, of its own body": {Form("a")}, "the handler's, of the original": nil} {
		s := startServer(t, bodyMiddleware(DefaultMaxBody, values, func(w http.ResponseWriter, r *http.Request) {
			require.Zero(t, files(), name)
			_, _ = toDisk(r)
			keep <- 1
		}))
		resp, err := http.Post(s.URL, w.FormDataContentType(), bytes.NewReader(body.Bytes()))
		require.NoError(t, err)
		<-keep
		require.NoError(t, resp.Body.Close())
		s.Close() // waits for the server
		require.Zero(t, files(), name)
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
	text, err := newRequest(file(1000000), DefaultMaxBody).value(Form("a"))
	require.NoError(t, err)
	require.Equal(t, "1", text)

	t.Setenv("TMPDIR", dir)
	text, err = newRequest(file(formMemory+1), 64<<20).value(Form("a"))
	require.NoError(t, err)
	require.Equal(t, "1", text)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// Files of a form that an outer handler has parsed are its own.
func TestTemporaryFilesOfOthers(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	r, _ := countedRequest("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n"+strings.Repeat("x", 1000)+"\r\n--b--\r\n")
	require.NoError(t, r.ParseMultipartForm(0))
	q := newRequest(r, DefaultMaxBody)
	for _, v := range []Value{Form("a"), readBody} {
		_, err := q.value(v)
		require.NoError(t, err)
	}
	require.NotSame(t, r, q.next(noContext))
	removeFiles(q.next(noContext), r)
	f, err := r.MultipartForm.File["file"][0].Open()
	require.NoError(t, err, "it is there yet")
	require.IsType(t, (*os.File)(nil), f)
	require.NoError(t, f.Close())
	require.NoError(t, r.MultipartForm.RemoveAll())
}

func TestOverConnections(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
		s := httptest.NewUnstartedServer(bodyMiddleware(100, []Value{Form("a"), Form("b")}, echo))
		s.EnableHTTP2 = proto == "HTTP/2"
		s.StartTLS()
		t.Cleanup(s.Close)
		for _, c := range []struct {
			name   string
			body   io.Reader
			length string
			status int
			a      string
		}{
			{"announced", strings.NewReader("a=1&b=2"), "7", 200, "1"},
			{"not announced", io.MultiReader(strings.NewReader("a=1&"), strings.NewReader("b=2")), "-1", 200, "1"},
			{"no body", nil, "0", 200, ""},
			{"too large", strings.NewReader("a=1&b=" + strings.Repeat("2", 100)), "", 413, ""},
			{"too large, not announced", io.MultiReader(strings.NewReader("a=1&b="), strings.NewReader(strings.Repeat("2", 1<<20))), "", 413, ""},
		} {
			t.Run(proto+", "+c.name, func(t *testing.T) {
				req, err := http.NewRequest("POST", s.URL, c.body)
				require.NoError(t, err)
				req.Header.Set("Content-Type", formType)
				resp, err := s.Client().Do(req)
				require.NoError(t, err)
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(resp.Proto, proto), resp.Proto)
				require.Equal(t, c.status, resp.StatusCode, string(got))
				if c.status == 200 {
					require.Equal(t, c.length, resp.Header.Get("Length"))
					require.Equal(t, c.a, resp.Header.Get("Value"))
					require.Equal(t, c.a != "", string(got) == "a=1&b=2", string(got))
				}
			})
		}
	}
}

func TestOverRawConnections(t *testing.T) {
	const head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: " + formType + "\r\n"
	for _, c := range []struct {
		name, raw  string
		closeWrite bool
		maxBody    int64  // 0: the default
		want       string // the answer's first line
		body       string // and its end
	}{
		{"chunked", head + "Transfer-Encoding: chunked\r\n\r\n3\r\na=1\r\n4\r\n&b=2\r\n0\r\n\r\n", false, 0, "HTTP/1.1 200", "a=1&b=2"},
		{"a chunk's length is no number", head + "Transfer-Encoding: chunked\r\n\r\n3\r\na=1\r\nzz\r\n", false, 0, "HTTP/1.1 400", "the request could not be read\n"},
		{"chunks break off", head + "Transfer-Encoding: chunked\r\n\r\n3\r\na=1\r\n9\r\n&b", true, 0, "HTTP/1.1 400", "the request could not be read\n"},
		{"shorter than announced", head + "Content-Length: 7\r\n\r\na=1", true, 0, "HTTP/1.1 400", "the request could not be read\n"},
		{"larger than may be: answered before it is sent", head + "Content-Length: 1000000\r\n\r\n", false, 100, "HTTP/1.1 413", "the request is larger than 100 bytes\n"},
		{"chunks without an end: answered at the bound", head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("7\r\na=1&b=2\r\n", 20), true, 100, "HTTP/1.1 413", "the request is larger than 100 bytes\n"},
		{"100-continue", head + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\na=1", false, 0, "HTTP/1.1 100", "a=1"},
		{"100-continue, too large: the client is not told to go on", head + "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n", false, 100, "HTTP/1.1 413", "the request is larger than 100 bytes\n"},
		{"two fields in a request after the first", strings.Replace(head, "Connection: close\r\n", "", 1) + "Content-Length: 3\r\n\r\na=1" + head + "Content-Length: 3\r\n\r\na=2", false, 0, "HTTP/1.1 200", "a=2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, bodyMiddleware(cmp.Or(c.maxBody, DefaultMaxBody), []Value{Form("a")}, echo))
			answer := exchange(t, s, c.raw, c.closeWrite)
			require.True(t, strings.HasPrefix(answer, c.want), answer)
			require.True(t, strings.HasSuffix(answer, c.body), answer)
			require.Equal(t, c.want == "HTTP/1.1 100", strings.Contains(answer, "100 Continue"), answer)
		})
	}
}

// Trailers are the handler's, announced or not, as net/http gives them to a
// handler that has read its body.
func TestTrailers(t *testing.T) {
	for _, announced := range []string{"", "Trailer: Sum\r\n"} {
		for _, values := range [][]Value{nil, {Form("a")}} {
			s := startServer(t, bodyMiddleware(DefaultMaxBody, values, func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				fmt.Fprint(w, "sum ", r.Trailer.Get("Sum"), " ", err)
			}))
			answer := exchange(t, s, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: "+formType+"\r\n"+announced+
				"Transfer-Encoding: chunked\r\n\r\n3\r\na=1\r\n0\r\nSum: 7\r\n\r\n", false)
			require.True(t, strings.HasSuffix(answer, "sum 7 <nil>"), answer)
		}
	}
}

// An upload stays a stream where no Value reads it: the handler answers to the
// first bytes before the client sends the rest.
func TestStream(t *testing.T) {
	s := startServer(t, bodyMiddleware(4, []Value{Header("X-User"), Form("q")}, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		buf := make([]byte, 5)
		for range 2 {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				t.Error(err)
			}
			_, _ = w.Write(buf)
			_ = c.Flush()
		}
	}))
	in, out := io.Pipe()
	req, err := http.NewRequest("POST", s.URL+"/?q=1", in)
	require.NoError(t, err)
	go func() { _, _ = io.WriteString(out, "first") }()
	resp, err := s.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	buf := make([]byte, 5)
	_, err = io.ReadFull(resp.Body, buf)
	require.NoError(t, err)
	require.Equal(t, "first", string(buf))
	_, err = io.WriteString(out, "later")
	require.NoError(t, err)
	require.NoError(t, out.Close())
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "later", string(rest))
}

// Two middlewares on one route, and a bound of net/http's around them.
func TestNested(t *testing.T) {
	inner := bodyMiddleware(50, []Value{Form("b")}, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.FormValue("a"), r.FormValue("b"))
	})
	outer := bodyMiddleware(100, []Value{Form("a")}, inner)
	s := startServer(t, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 90)
		outer(w, r)
	})
	for size, want := range map[int]string{
		50: "200 12",
		51: `413 httplimit: form field "b": the request is larger than 50 bytes`,
		91: `413 httplimit: form field "a": the request is larger than 90 bytes`,
	} {
		body := "a=1&b=2&c=" + strings.Repeat("x", size-10)
		resp, err := http.Post(s.URL, formType, io.MultiReader(strings.NewReader(body)))
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(got))))
	}
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

// The cost of a Value for a middleware, the copy of the request included.
func BenchmarkValue(b *testing.B) {
	for _, c := range []struct {
		name, contentType, body string
		v                       Value
		want                    string
	}{
		{"Header", "", "", Header("X-Token"), "t0k3n"},
		{"Cookie", "", "", Cookie("sid"), "5e55"},
		{"BasicUser", "", "", BasicUser(), "ann"},
		{"Form", formType, "email=ann%40example.org&name=Ann", Form("email"), "ann@example.org"},
		{"JSON", "application/json", `{"name":"Ann","user":{"email":"ann@example.org","id":7}}`, JSON("user", "email"), "ann@example.org"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest("POST", "/signup?lang=en", nil)
			r.Header.Set("Content-Type", c.contentType)
			r.Header.Set("X-Token", "t0k3n")
			r.Header.Set("Cookie", "lang=en; sid=5e55; theme=dark")
			r.SetBasicAuth("ann", "secret")
			source := strings.NewReader("")
			r.Body, r.ContentLength = io.NopCloser(source), int64(len(c.body))
			b.ReportAllocs()
			for b.Loop() {
				source.Reset(c.body)
				q := newRequest(r, DefaultMaxBody)
				text, err := q.value(c.v)
				if text != c.want || err != nil {
					b.Fatal(text, err)
				}
				if q.next(noContext) == nil {
					b.Fatal("no request")
				}
			}
		})
	}
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
