package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

// start starts the site.
func start(t *testing.T) (site string, stop context.CancelFunc) {
	ctx, stop := context.WithCancel(t.Context())
	handler := try.To(serve.New(ctx))(t)
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		stop() // before Close, which waits for streams
		server.Close()
	})
	return server.URL, stop
}

func do(t *testing.T, r *http.Request) (answer *http.Response, body string) {
	answer = try.To(http.DefaultClient.Do(r))(t)
	defer answer.Body.Close()
	all := try.To(io.ReadAll(answer.Body))(t)
	return answer, string(all)
}

func request(t *testing.T, method, to string, form url.Values) *http.Request {
	r := try.To(http.NewRequestWithContext(t.Context(), method, to, strings.NewReader(form.Encode())))(t)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

// Other sites that a browser on this machine shows can neither read nor send.
func TestOthersAreKeptOut(t *testing.T) {
	site, _ := start(t)
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "LOCALHOST:1": 200, "127.9.9.9:80": 200, "[::1]:80": 200, "[::1]": 200,
		"localhost.example.org": 421, "example.org": 421, "192.0.2.1": 421, "127.0.0.1.example.org:80": 421, "0.0.0.0": 421,
	} {
		r := request(t, "GET", site, nil)
		r.Host = host
		answer, _ := do(t, r)
		require.Equal(t, want, answer.StatusCode, host)
		require.Contains(t, answer.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'", host)
	}
	for header, other := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:1"} {
		for _, form := range []string{"/race/x", "/site/signup"} {
			r := request(t, "POST", site+form, url.Values{"do": {"play"}})
			r.Header.Set(header, other)
			answer, _ := do(t, r)
			require.Equal(t, 403, answer.StatusCode, "%s from %s", form, other)
		}
	}
	for _, stream := range []string{"/race?limit=10/m", "/watch/looks"} {
		for header, values := range map[string]map[string]int{
			"Sec-Fetch-Site": {"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200},
			"Origin":         {"https://example.org": 403, "http://127.0.0.1:1": 403, "null": 403, site: 200},
		} {
			for value, want := range values {
				r := request(t, "GET", site+stream, nil)
				r.Header.Set(header, value)
				answer := try.To(http.DefaultClient.Do(r))(t)
				require.NoError(t, answer.Body.Close())
				require.Equal(t, want, answer.StatusCode, "%s, %s: %s", stream, header, value)
			}
		}
	}
}

var inline = regexp.MustCompile(`(?i)<style|<script[^>]*>[^<]|\son[a-z]+=|\sstyle=|(src|href|action)="?(https?:)?//`)

// No page has a script or a style in it, or anything from elsewhere.
func TestPagesObeyThePolicy(t *testing.T) {
	site, _ := start(t)
	for _, page := range serve.Pages {
		answer, body := do(t, request(t, "GET", site+page.Path, nil))
		require.Equal(t, 200, answer.StatusCode, page.Path)
		require.Empty(t, inline.FindString(body), page.Path)
		require.Contains(t, body, `aria-current="page"`, page.Path)
	}
	for _, asset := range []string{"/abacus.css", "/abacus.js", "/icon.svg"} {
		answer, body := do(t, request(t, "GET", site+asset, nil))
		require.Equal(t, 200, answer.StatusCode, asset)
		require.NotEmpty(t, body)
	}
}

// events is a stream of events.
type events struct {
	t     *testing.T
	lines *bufio.Scanner
}

func open(t *testing.T, to string) (*events, *http.Response) {
	answer := try.To(http.DefaultClient.Do(request(t, "GET", to, nil)))(t)
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return &events{t, lines}, answer
}

// next decodes the next event of a name; false after the end of the stream.
func (e *events) next(name string, into any) bool {
	for e.lines.Scan() {
		if e.lines.Text() == "event: "+name && e.lines.Scan() {
			data, is := strings.CutPrefix(e.lines.Text(), "data: ")
			require.True(e.t, is, e.lines.Text())
			require.NoError(e.t, json.Unmarshal([]byte(data), into))
			return true
		}
	}
	return false
}

type shown struct {
	Playing bool
	Speed   float64
	Planned int
	Tried   int64
	Crowd   bool
	Racers  []struct {
		Name string
		Peak int64
	}
}

func (s shown) peak(name string) int64 {
	for _, r := range s.Racers {
		if r.Name == name {
			return r.Peak
		}
	}
	return -1
}

// A race is steered by its name, and shows 20 of 10 admitted by the fixed window.
func TestRace(t *testing.T) {
	site, stop := start(t)
	stream, answer := open(t, site+"/race?limit="+url.QueryEscape("10/m"))
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	var name string
	require.True(t, stream.next("race", &name))
	steer := func(todo, value string) (int, string) {
		answer, body := do(t, request(t, "POST", site+"/race/"+name, url.Values{"do": {todo}, "value": {value}}))
		return answer.StatusCode, body
	}
	until := func(is func(s *shown) bool) (s shown) {
		t.Helper()
		for stream.next("frame", &s) {
			if is(&s) {
				return s
			}
			s = shown{}
		}
		t.Fatal("the stream has ended")
		return s
	}
	status, _ := steer("speed", "1000")
	require.Equal(t, 204, status)
	status, _ = steer("play", "")
	require.Equal(t, 204, status)
	s := until(func(s *shown) bool { return s.Playing && s.Planned == 0 })
	require.Equal(t, 1000.0, s.Speed)
	require.EqualValues(t, 20, s.peak("fixed window"))
	require.EqualValues(t, 10, s.peak("abacus"))

	_, _ = steer("crowd", "")
	s = until(func(s *shown) bool { return s.Tried > 1000 })
	require.True(t, s.Crowd)
	require.EqualValues(t, 10, s.peak("abacus"))

	_, _ = steer("pause", "")
	s = until(func(s *shown) bool { return !s.Playing })
	_, _ = steer("hit", "")
	after := until(func(after *shown) bool { return after.Tried > s.Tried })
	require.Equal(t, s.Tried+1, after.Tried)
	_, _ = steer("pattern", "20 "+strings.Repeat("0 ", 22)+"7")
	_, _ = steer("play", "")
	until(func(after *shown) bool { return after.Tried == s.Tried+28 })

	for _, wrong := range [][2]string{
		{"", ""}, {"jump", ""}, {"speed", "0"}, {"speed", "10001"}, {"speed", "NaN"}, {"speed", "x"},
		{"pattern", "1 2"}, {"pattern", strings.Repeat("21 ", 24)}, {"pattern", strings.Repeat("-1 ", 24)}, {"pattern", strings.Repeat("9", 1000)},
	} {
		status, body := steer(wrong[0], wrong[1])
		require.Equal(t, 400, status, wrong)
		require.Contains(t, body, "want", wrong)
	}
	status, _ = steer("hit", strings.Repeat("9", 20_000))
	require.Equal(t, 413, status)
	stop()
	for frames := 0; stream.next("frame", new(shown)); frames++ { // frames that were on their way
		require.Less(t, frames, 100, "the stream ends with the server")
	}
}

func TestRacesThatAreNotThere(t *testing.T) {
	site, _ := start(t)
	answer, body := do(t, request(t, "GET", site+"/race?limit=11/m", nil))
	require.Equal(t, 400, answer.StatusCode)
	require.Contains(t, body, "10/m")
	answer, _ = do(t, request(t, "POST", site+"/race/nobody", url.Values{"do": {"play"}}))
	require.Equal(t, 404, answer.StatusCode)
}

// Of the streams at once the oldest makes room, and its race waits for the page.
func TestStreamsTakeTurns(t *testing.T) {
	site, _ := start(t)
	first, answer := open(t, site+"/race?limit=10/m")
	var name, same string
	require.True(t, first.next("race", &name))
	press, _ := do(t, request(t, "POST", site+"/race/"+name, url.Values{"do": {"hit"}}))
	require.Equal(t, 204, press.StatusCode)
	for range 4 {
		other, _ := open(t, site+"/race?limit=10/m")
		require.True(t, other.next("race", new(string)))
	}
	require.True(t, first.next("again", new(any)))
	require.NoError(t, try.Err(io.ReadAll(answer.Body)), "the stream ends in order: its connection is free")

	press, _ = do(t, request(t, "POST", site+"/race/"+name, url.Values{"do": {"hit"}}))
	require.Equal(t, 204, press.StatusCode)
	again, _ := open(t, site+"/race?limit=10/m&name="+name)
	require.True(t, again.next("race", &same))
	require.Equal(t, name, same)
	var s shown
	require.True(t, again.next("frame", &s))
	require.EqualValues(t, 2, s.Tried, "the race goes on")
}

var tag = regexp.MustCompile(`(?s)<script.*?</script>|<[^>]*>`)

// A stranger reads the scenes in less than three minutes, at 220 words a minute.
func TestScenesAreShort(t *testing.T) {
	site, _ := start(t)
	_, body := do(t, request(t, "GET", site, nil))
	_, scenes, _ := strings.Cut(body, "<main")
	scenes, _, is := strings.Cut(scenes, `<div id="sandbox"`)
	require.True(t, is)
	words := len(strings.Fields(tag.ReplaceAllString(scenes, " ")))
	t.Logf("%d words", words)
	require.Greater(t, words, 150)
	require.LessOrEqual(t, words, 500)
}

// The numbers of the scenes, and the source of the traffic behind some of them, are a
// click away.
func TestSourcesOfTheFacts(t *testing.T) {
	site, _ := start(t)
	answer, body := do(t, request(t, "GET", site+"/facts.json", nil))
	require.Equal(t, "application/json", answer.Header.Get("Content-Type"))
	require.True(t, json.Valid([]byte(body)))
	answer, body = do(t, request(t, "GET", site+"/generate.go.txt", nil))
	require.Equal(t, "text/plain; charset=utf-8", answer.Header.Get("Content-Type"))
	require.Contains(t, body, "func Generate(")
}
