package httplimit_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
)

// reading is a middleware that reads fields of a form, and never denies.
func reading(t *testing.T, maxBody int64, values map[string]httplimit.Value) func(http.Handler) http.Handler {
	var rules []limiter.Rule
	cfg := httplimit.Config{MaxBody: maxBody}
	for kind, v := range values {
		rules = append(rules, skipped(by(kind, "900/h")))
		cfg.Features = append(cfg.Features, httplimit.NewSource(kind, v))
	}
	cfg.Limiter = newLimiter(t, newClock(), rules...)
	return newLimit(t, cfg)
}

func fields(names ...string) map[string]httplimit.Value {
	values := map[string]httplimit.Value{}
	for _, name := range names {
		values[name] = httplimit.Form(name)
	}
	return values
}

// An outer middleware finds its request unchanged, whatever Values and handler
// do, but for the body, which was read.
func TestOriginalRequest(t *testing.T) {
	r := httptest.NewRequest("POST", "/?q=query", strings.NewReader("a=1"))
	r.Header.Set("Content-Type", urlencoded)
	before, header, target := *r, r.Header.Clone(), *r.URL
	reading(t, 0, map[string]httplimit.Value{
		"a":     httplimit.Form("a"),
		"all":   func(r *http.Request) (string, error) { text, err := io.ReadAll(r.Body); return string(text), err },
		"value": func(r *http.Request) (string, error) { return r.FormValue("a"), nil },
	})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		require.Equal(t, "1", r.FormValue("a"))
		require.Equal(t, "query", r.FormValue("q"))
	})).ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, before, *r)
	require.Equal(t, header, r.Header)
	require.Equal(t, target, *r.URL)
}

// net/http's server removes the files of its own request only, so those of a
// copy would stay.
func TestTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	files := func() int { return len(try.To(os.ReadDir(dir))(t)) }
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part := try.To(w.CreateFormFile("file", "x"))(t)
	try.To(part.Write(bytes.Repeat([]byte("x"), 1000)))(t)
	require.NoError(t, w.WriteField("a", "1"))
	require.NoError(t, w.Close())
	parsed := 0
	toDisk := func(r *http.Request) (string, error) {
		if err := r.ParseMultipartForm(0); err != nil {
			return "", err // it is not to be read yet
		}
		parsed++
		require.Equal(t, 1, files())
		return r.FormValue("a"), nil
	}
	for _, values := range []map[string]httplimit.Value{{"a": toDisk}, fields("a"), {"a": httplimit.Header("A")}} {
		s := newSite(t, reading(t, 0, values)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			require.Zero(t, files())
			_, _ = toDisk(r)
		})))
		require.Equal(t, 200, s.do("POST", "/", body.String(), "Content-Type: "+w.FormDataContentType()).status)
		s.Close() // waits for the server
		require.Zero(t, files())
	}
	require.Equal(t, 4, parsed)
}

func TestOverConnections(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		s := &site{t, httptest.NewUnstartedServer(reading(t, 100, fields("a", "b"))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Proto, " ", r.ContentLength, " ")
			_, _ = io.Copy(w, r.Body)
		})))}
		s.EnableHTTP2 = proto == "HTTP/2.0"
		s.StartTLS()
		t.Cleanup(s.Close)
		many := strings.Repeat("2", 100)
		for _, row := range []struct {
			name   string
			body   io.Reader
			status int
			want   string
		}{
			{"announced", strings.NewReader("a=1&b=2"), 200, proto + " 7 a=1&b=2"},
			{"not announced", io.MultiReader(strings.NewReader("a=1&"), strings.NewReader("b=2")), 200, proto + " -1 a=1&b=2"},
			{"no body", nil, 200, proto + " 0 "},
			{"too large", strings.NewReader("a=1&b=" + many), 413, "larger than 100 bytes"},
			{"too large, not announced", io.MultiReader(strings.NewReader("a=1&b="), strings.NewReader(strings.Repeat(many, 10_000))), 413, "larger than 100 bytes"},
		} {
			got := try.To(s.Client().Post(s.URL, urlencoded, row.body))(t)
			text := try.To(io.ReadAll(got.Body))(t)
			require.NoError(t, got.Body.Close())
			require.Equal(t, row.status, got.StatusCode, row.name)
			require.Contains(t, string(text), row.want, row.name)
		}
	}
}

// Trailers are the handler's too, announced or not.
func TestOverRawConnections(t *testing.T) {
	const start, form = "POST / HTTP/1.1\r\nHost: x\r\n", asForm + "\r\n"
	const head, chunked = start + "Connection: close\r\n" + form, "Transfer-Encoding: chunked\r\n\r\n3\r\na=1\r\n"
	const unread, large = `"The request could not be read."}` + "\n", `"The request is larger than 100 bytes."}` + "\n"
	for _, row := range []struct {
		name, raw string
		ends      bool   // the client sends no more
		want      string // the beginning of the answer
		body      string // and its end
	}{
		{"chunked", head + chunked + "4\r\n&b=2\r\n0\r\n\r\n", false, "HTTP/1.1 200", "a=1&b=2 "},
		{"a chunk's length is no number", head + chunked + "zz\r\n", false, "HTTP/1.1 400", unread},
		{"chunks break off", head + chunked + "9\r\n&b", true, "HTTP/1.1 400", unread},
		{"shorter than announced", head + "Content-Length: 7\r\n\r\na=1", true, "HTTP/1.1 400", unread},
		{"larger than may be: answered before it is sent", head + "Content-Length: 1000000\r\n\r\n", false, "HTTP/1.1 413", large},
		{"chunks without an end: answered at the bound", head + chunked + strings.Repeat("7\r\na=1&b=2\r\n", 20), true, "HTTP/1.1 413", large},
		{"100-continue", head + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\na=1", false, "HTTP/1.1 100 Continue", "a=1 "},
		{"100-continue, too large: the client is not told to go on", head + "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n", false, "HTTP/1.1 413", large},
		{"two fields in a request after the first", start + form + "Content-Length: 3\r\n\r\na=1" + head + "Content-Length: 3\r\n\r\na=2", false, "HTTP/1.1 200", "a=2 "},
		{"a trailer", head + chunked + "0\r\nSum: 7\r\n\r\n", false, "HTTP/1.1 200", "a=1 7"},
		{"an announced trailer", head + "Trailer: Sum\r\n" + chunked + "0\r\nSum: 7\r\n\r\n", false, "HTTP/1.1 200", "a=1 7"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSite(t, reading(t, 100, fields("a"))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body := try.To(io.ReadAll(r.Body))(t)
				fmt.Fprint(w, string(body), " ", r.Trailer.Get("Sum"))
			})))
			answer := s.exchange(row.raw, row.ends)
			require.True(t, strings.HasPrefix(answer, row.want), answer)
			require.True(t, strings.HasSuffix(answer, row.body), answer)
			require.Equal(t, row.want == "HTTP/1.1 100 Continue", strings.Contains(answer, "100 Continue"), answer)
		})
	}
}

// An upload stays a stream where no Value reads it: the handler answers to the
// first bytes before the client sends the rest.
func TestStream(t *testing.T) {
	values := map[string]httplimit.Value{"user": httplimit.Header("User"), "q": httplimit.Form("q")}
	s := newSite(t, reading(t, 4, values)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		assert.NoError(t, c.EnableFullDuplex())
		buf := make([]byte, 5)
		for range 2 {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				t.Error(err)
			}
			_, _ = w.Write(buf)
			_ = c.Flush()
		}
	})))
	in, out := io.Pipe()
	go func() { _, _ = io.WriteString(out, "first") }()
	got := try.To(s.Client().Post(s.URL+"/?q=1", "", in))(t)
	defer got.Body.Close()
	buf := make([]byte, 5)
	try.To(io.ReadFull(got.Body, buf))(t)
	require.Equal(t, "first", string(buf))
	try.To(io.WriteString(out, "later"))(t)
	require.NoError(t, out.Close())
	require.Equal(t, "later", string(try.To(io.ReadAll(got.Body))(t)))
}

// Two middlewares on one route, and a bound of net/http's around them.
func TestNestedBounds(t *testing.T) {
	nested := reading(t, 100, fields("a"))(reading(t, 50, fields("b"))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.FormValue("a"), r.FormValue("b"))
	})))
	s := newSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 90)
		r.ContentLength = -1
		nested.ServeHTTP(w, r)
	}))
	for size, want := range map[int]string{50: "12", 51: "The request is larger than 50 bytes.", 91: "The request is larger than 90 bytes."} {
		require.Contains(t, s.do("POST", "/", "a=1&b=2&c="+strings.Repeat("x", size-10), asForm).body, want)
	}
}
