package watch

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/web"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/metrics/tally"
	"github.com/abacus-go/abacus/rules"
)

const rulesFile = `events:
  signup:
    ip: {limits: "2/m, 5/d", ban: 1h}
    user: {limits: "3/h, 4 per day in UTC", on_failure: fail-local}
`

// watched is a store to watch, by a file of rules.
func watched(t *testing.T, store string) *Config {
	name := try.To(stores.Parse(store))(t)
	w := &Config{File: filepath.Join(t.TempDir(), "rules.yaml")}
	require.NoError(t, os.WriteFile(w.File, []byte(rulesFile), 0o600))
	w.Rules = try.To(rules.Load(w.File))(t)
	w.Store = try.To(stores.OpenReadOnly(name, time.Second))(t)
	t.Cleanup(func() { w.Store.Close() })
	return w
}

// startSite serves a watch.
func startSite(t *testing.T, w *Config) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(siteOf(t, ofWatched(t, w)))
	t.Cleanup(server.Close)
	return server
}

// siteOf is a site that has a watch and nothing else.
func siteOf(t *testing.T, of *Source) *web.Site {
	site := web.New(t.Context(), Page)
	of.Add(t.Context(), site)
	return site
}

// looks is a watch for a test that looks by itself.
func looks(t *testing.T, of *Source) *watch {
	return &watch{source: of, ctx: t.Context(), servers: map[string]*serverState{}}
}

func ofWatched(t *testing.T, w *Config) *Source { return try.To(OfStore(t.Context(), w))(t) }

// condition is a condition of a look.
func (l *look) condition(t *testing.T, name string) (found *condition) {
	i := slices.IndexFunc(l.Conditions, func(c condition) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, "no condition %q in %v", name, l.Conditions)
	return &l.Conditions[i]
}

// program is a limiter by the rules of the file, as a service has it.
func program(t *testing.T, store string) *limiter.Limiter {
	c := try.To(counter.New(open(t, store).Store, counter.Config{Patience: -1}))(t)
	return try.To(limiter.New(c, limiter.Config{Rules: ruleSet(t), DecideWithin: -1}))(t)
}

// open opens a store for the program and for the test.
func open(t *testing.T, store string) *stores.Opened {
	name := try.To(stores.Parse(store))(t)
	opened := try.To(stores.Open(name, 10*time.Second))(t)
	t.Cleanup(func() { opened.Close() })
	return opened
}

// ruleSet has the rules of the file, for stores that do not fail.
func ruleSet(t *testing.T) []limiter.Rule {
	set := try.To(rules.Parse("rules.yaml", []byte(strings.ReplaceAll(rulesFile, ", on_failure: fail-local", ""))))(t)
	return set.Rules
}

func hit(t *testing.T, lim *limiter.Limiter, ip, user string) {
	try.To(lim.Allow(t.Context(), "signup", feature.New("ip", ip), feature.New("user", user)))(t)
}

// ask asks for a key, and returns the status and the body.
func ask(t *testing.T, server *httptest.Server, fields ...string) (int, string) {
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	answer := try.To(http.PostForm(server.URL+"/watch/key", form))(t)
	defer answer.Body.Close()
	var b strings.Builder
	try.To(bufio.NewReader(answer.Body).WriteTo(&b))(t)
	return answer.StatusCode, b.String()
}

// Neither the looks nor a question for a key write to a store: no item, no
// time to live, no library of functions.
func TestWatchWritesNothing(t *testing.T) {
	redis, memcached := servertest.Redis(t), servertest.Memcached(t)
	client := goredis.NewClient(&goredis.Options{Addr: redis})
	defer client.Close()
	items := open(t, "memcached://"+memcached)
	for store, written := range map[string]func() string{
		"redis://" + redis: func() string {
			info := try.To(client.InfoMap(t.Context(), "persistence").Result())(t)
			libraries := try.To(client.FunctionList(t.Context(), goredis.FunctionListQuery{}).Result())(t)
			return fmt.Sprint(info["Persistence"]["rdb_changes_since_last_save"], libraries)
		},
		"memcached://" + memcached: func() string {
			stats := items.Look(t.Context())[0].Facts
			var all []string
			// Not incr_misses: by an addition of 0 to no item each connection asks for the
			// commands that the server knows.
			for _, name := range []string{"cmd_set", "cmd_touch", "cmd_flush", "total_items", "incr_hits", "decr_hits", "decr_misses", "cas_hits", "cas_misses", "delete_hits", "delete_misses"} {
				require.Contains(t, stats, name)
				all = append(all, stats[name])
			}
			return strings.Join(all, ", ")
		},
	} {
		empty := written()
		lim := program(t, store)
		for range 3 { // the third is denied, and begins a ban
			hit(t, lim, "203.0.113.9", "ada")
		}
		require.NoError(t, client.FunctionFlush(t.Context()).Err())
		before := written()
		require.Eventually(t, func() bool { // takings back may still be under way
			was := before
			before = written()
			return was == before
		}, time.Minute, 300*time.Millisecond)
		require.NotEqual(t, empty, before)

		server := startSite(t, watched(t, store))
		answer := try.To(http.Get(server.URL + "/watch/looks"))(t)
		events := bufio.NewScanner(answer.Body)
		events.Buffer(nil, 1<<20)
		for n := 0; n < 3 && events.Scan(); {
			if events.Text() == "event: look" {
				n++
			}
		}
		require.NoError(t, events.Err())
		status, body := ask(t, server, "event", "signup", "kind", "ip", "value", "203.0.113.9")
		require.Equal(t, 200, status, body)
		var key Key
		require.NoError(t, json.Unmarshal([]byte(body), &key))
		require.Equal(t, "ip:203.0.113.9", key.Feature)
		require.Equal(t, []string{"1d", "1m"}, key.Windows)
		require.Equal(t, int64(2), key.Limits[1].Used, body)
		require.NotEmpty(t, key.Banned)
		require.NotEmpty(t, key.Rods.Rods)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, before, written(), store)
	}
}

// A key is found by the form in which people write it, and bad input gets a message.
func TestWatchKey(t *testing.T) {
	store := "redis://" + servertest.Redis(t)
	lim := program(t, store)
	hit(t, lim, "2001:db8::1", "<b>ada</b>")
	server := startSite(t, watched(t, store))
	for _, value := range []string{"2001:db8::2", " 2001:DB8::1 ", "2001:db8::/64"} {
		status, body := ask(t, server, "event", "signup", "kind", "ip", "value", value, "window", "1m")
		require.Equal(t, 200, status, body)
		require.Contains(t, body, `"limits":[{"limit":"2/m","low":1,"used":1,"room":1,`, value)
		require.Contains(t, body, `"window":"1m"`)
	}
	_, body := ask(t, server, "event", "signup", "kind", "user", "value", "<b>ada</b>")
	require.Contains(t, body, `"feature":"user:\u003cb\u003eada\u003c/b\u003e"`)
	require.Contains(t, body, `"used":1`)
	require.Contains(t, body, `"windows":["day in UTC","1h"]`)
	_, body = ask(t, server, "event", "signup", "kind", "user", "value", "<b>ada</b>", "window", "day in UTC")
	require.Contains(t, body, `"window":"day in UTC"`)
	require.Contains(t, body, `"max":4`)
	var key Key
	require.NoError(t, json.Unmarshal([]byte(body), &key))
	require.Less(t, math.Mod(key.Rods.From, 86400e3), 1000., "the rods begin at midnight, and Skew")
	for _, row := range []struct{ event, kind, value, want string }{
		{"logon", "ip", "203.0.113.9", `event: got "logon", want one of signup`},
		{"signup", "email", "ada@example.org", `kind: got "email", want a kind of a rule of signup`},
		{"signup", "ip", " ", "value: empty, want a feature of kind ip, such as 203.0.113.9"},
		{"signup", "ip", "ada", `feature "ip" is not an IP address`},
	} {
		_, body := ask(t, server, "event", row.event, "kind", row.kind, "value", row.value)
		var key Key
		require.NoError(t, json.Unmarshal([]byte(body), &key))
		require.Contains(t, key.Fault, row.want)
		require.False(t, key.Again)
	}
	gone := startSite(t, watched(t, "redis://127.0.0.1:1/0"))
	_, body = ask(t, gone, "event", "signup", "kind", "ip", "value", "203.0.113.9")
	require.Contains(t, body, "connection refused")
	require.Contains(t, body, `"again":true`)
}

// A server that stops, hangs, or comes back is told, and nothing else stops.
func TestWatchStoreGoneAndBack(t *testing.T) {
	for _, row := range []struct {
		scheme string
		start  func(testing.TB, ...string) *servertest.Server
	}{{"redis", servertest.StartRedis}, {"memcached", servertest.StartMemcached}} {
		server := row.start(t)
		w := looks(t, ofWatched(t, watched(t, row.scheme+"://"+server.Addr)))
		l := w.look(t.Context())
		require.Empty(t, l.Servers[0].Fault)
		require.NotNil(t, l.Trip)
		require.Len(t, l.Servers[0].Trips, 3)
		require.NotEmpty(t, l.Servers[0].Version)
		require.Equal(t, holds, l.condition(t, "The store answers").State)
		require.Equal(t, unknown, l.condition(t, "The store takes hits").State)
		require.Equal(t, unknown, l.condition(t, "All callers count alike").State)
		first := l.Servers[0].Since

		server.Pause()
		l = w.look(t.Context())
		require.Equal(t, "no answer within 1.5s", l.Servers[0].Fault, row.scheme)
		server.Resume()
		require.Eventually(t, func() bool { return w.look(t.Context()).Servers[0].Fault == "" }, time.Minute, 100*time.Millisecond)

		server.Kill()
		l = w.look(t.Context())
		require.Contains(t, l.Servers[0].Fault, "connection refused", row.scheme)
		require.Nil(t, l.Trip)
		require.Greater(t, l.Servers[0].Since, first)
		require.Equal(t, broken, l.condition(t, "The store answers").State)
		require.Equal(t, l.Servers[0].Since, w.look(t.Context()).Servers[0].Since, "since the first look without an answer")

		server.Restart()
		require.Eventually(t, func() bool { l = w.look(t.Context()); return l.Servers[0].Fault == "" }, time.Minute, 100*time.Millisecond)
		require.Equal(t, broken, l.condition(t, "The store has kept the longest window").State)
	}
}

// A server that is another one and was up before has taken the place of the first, as
// Sentinels do; what has begun since is a restart.
func TestWatchFailover(t *testing.T) {
	for up, want := range map[string]string{"9": "main was restarted", "60": "Another server has taken the place of main"} {
		w := looks(t, &Source{lim: service(t).Limiter})
		now := time.Now()
		for _, answer := range []struct{ run, up string }{{"a", "600"}, {"b", up}} {
			found := []stores.Look{{Server: backend.Server{Name: "main", Run: answer.run, Facts: map[string]string{"uptime_in_seconds": answer.up}}}}
			w.lookAtServers(&look{}, now, found)
			now = now.Add(10 * time.Second)
			if c := w.kept(found); answer.run == "b" {
				require.Equal(t, broken, c.State)
				require.Contains(t, c.Why, want)
			}
		}
	}
}

// Settings of the servers decide about the conditions.
func TestWatchConditions(t *testing.T) {
	w := looks(t, ofWatched(t, watched(t, "redis://"+servertest.Redis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))))
	c := w.look(t.Context()).condition(t, "Nothing is evicted")
	require.Equal(t, broken, c.State)
	require.Contains(t, c.Why, "allkeys-lru, ")
	require.Contains(t, c.Why, " of 105 MB used. What is evicted is forgiven")
}

// counted is a limiter and its numbers.
type counted struct {
	*limiter.Limiter
	numbers *tally.Tally
}

// service is a limiter with its status page.
func service(t *testing.T) *counted {
	c := try.To(counter.New(memory.New(memory.Config{}), counter.Config{Skew: counter.DefaultSkew}))(t)
	numbers := tally.New(c)
	return &counted{try.To(limiter.New(c, limiter.Config{Rules: ruleSet(t), Observe: numbers.Observe}))(t), numbers}
}

// The decisions of a service are told by its status; a restart gives no rate.
func TestWatchService(t *testing.T) {
	var lim atomic.Pointer[counted]
	lim.Store(service(t))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		if name != "ops" || password != "pepper" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		tally.Status(lim.Load().Limiter, lim.Load().numbers).ServeHTTP(w, r)
	}))
	defer server.Close()
	of := watched(t, "redis://"+servertest.Redis(t))
	of.Counter.Skew = counter.DefaultSkew
	of.Status = try.To(url.Parse(strings.Replace(server.URL, "http://", "http://ops:pepper@", 1) + "/limits?token=hush"))(t)
	source := ofWatched(t, of)
	require.Equal(t, server.URL+"/limits", source.status)
	w := looks(t, source)
	l := w.look(t.Context())
	require.Empty(t, l.Service.Fault)
	require.Nil(t, l.Rates, "one look is no rate")
	require.Equal(t, holds, l.condition(t, "All callers count alike").State)
	for range 4 {
		hit(t, lim.Load().Limiter, "203.0.113.9", "<script>alert(1)</script>\u202e")
	}
	l = w.look(t.Context())
	require.Greater(t, l.Rates["admitted"], 0.0)
	require.Equal(t, map[string]int64{"admitted": 2, "banned": 2}, l.Service.Outcomes)
	require.Equal(t, deniedRow{"signup", "ip", "ip:203.0.113.9", "203.0.113.9", 2, 2}, l.Service.Denied[0])

	lim.Store(service(t))
	hit(t, lim.Load().Limiter, "203.0.113.9", "ada")
	l = w.look(t.Context())
	require.Nil(t, l.Rates)
	require.Equal(t, 1, l.Service.Begins)
	hit(t, lim.Load().Limiter, "203.0.113.9", "ada")
	require.Greater(t, w.look(t.Context()).Rates["admitted"], 0.0)

	of.Status.User = nil
	l = w.look(t.Context())
	require.Equal(t, "the answer is 401 Unauthorized, want 200 and the JSON of tally.Status", l.Service.Fault)
	require.Nil(t, l.Rates)
}

func TestRates(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	of := func(since time.Time, admitted, denied int64) *status {
		return &status{Tallied: true, Snapshot: tally.Snapshot{Since: since}, totals: map[limiter.Outcome]int64{limiter.OutcomeAdmitted: admitted, limiter.OutcomeOverLimit: denied}}
	}
	require.Equal(t, map[string]float64{"admitted": 5, "over-limit": 0}, rates(of(began, 10, 3), of(began, 20, 3), 2*time.Second))
	require.Nil(t, rates(of(began, 10, 3), of(began, 20, 2), time.Second), "less in all")
	require.Nil(t, rates(of(began, 10, 3), of(began.Add(1), 20, 3), time.Second), "another life")
	require.Nil(t, rates(of(began, 10, 3), &status{Tallied: true, Snapshot: tally.Snapshot{Since: began}}, time.Second), "an outcome is gone")
	require.Nil(t, rates(of(began, 10, 3), &status{}, time.Second))
}

// Whatever answers in the place of a service is an error with a reason: bounded, and
// without what is secret in the URL.
func TestWatchHostileStatus(t *testing.T) {
	elsewhere := atomic.Int64{}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) }
	}
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"garbage":  {text("\x00\xff{{{"), "is not the JSON of tally.Status"},
		"HTML":     {text("<html><script>alert(1)</script>"), "is not the JSON of tally.Status"},
		"empty":    {text("{}"), "it has no at and no rules"},
		"ten MB":   {text(`{"at":"` + strings.Repeat("x", 10<<20)), "has more than 1048576 bytes"},
		"no page":  {http.NotFound, "the answer is 404 Not Found, want 200"},
		"below 0":  {text(`{"at":"2026-03-01T12:00:00Z","rules":[],"decisions":[{"outcome":"admitted","count":-1}]}`), "has -1 decisions"},
		"overflow": {text(`{"at":"2026-03-01T12:00:00Z","rules":[],"decisions":[{"outcome":"admitted","count":9223372036854775807},{"outcome":"admitted","count":9223372036854775807}]}`), "want 0 to"},
		"outcome":  {text(`{"at":"2026-03-01T12:00:00Z","rules":[],"decisions":[{"outcome":"<b>","count":1}]}`), "is not the JSON of tally.Status"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, "which is not followed"},
		"loop":     {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) }, "more than 3 redirects"},
		"silence":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within 1.5s"},
		"half": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, `{"at":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "within 1.5s"},
	} {
		server := httptest.NewServer(row.answer)
		u := try.To(url.Parse(strings.Replace(server.URL, "http://", "http://ops:pepper@", 1) + "/?token=hush"))(t)
		w := looks(t, &Source{lim: service(t).Limiter, ask: askService(u)})
		l := w.look(t.Context())
		require.Contains(t, l.Service.Fault, row.want, name)
		require.NotContains(t, l.Service.Fault, "pepper", name)
		require.NotContains(t, l.Service.Fault, "hush", name)
		server.CloseClientConnections()
		server.Close()
	}
	require.Zero(t, elsewhere.Load())

	_, err := askService(&url.URL{Scheme: "http", Host: "127.0.0.1:1", User: url.UserPassword("ops", "pepper"), RawQuery: "token=hush"})(t.Context())
	require.ErrorContains(t, err, "connection refused")
	require.NotContains(t, err.Error(), "hush")
}

// All pages share one row of looks, each of which begins after the end of the one before;
// a later page has what was seen until then.
func TestWatchLooksOnce(t *testing.T) {
	var under, all atomic.Int64
	hold := make(chan struct{})
	w := looks(t, &Source{lim: service(t).Limiter, ask: func(context.Context) (*status, error) {
		require.Equal(t, int64(1), under.Add(1))
		defer under.Add(-1)
		all.Add(1)
		<-hold
		return &status{}, nil
	}})
	var pages sync.WaitGroup
	for range 32 {
		pages.Go(func() { w.next() })
	}
	close(hold)
	pages.Wait()
	require.Equal(t, int64(1), all.Load(), "a look is for all")
	require.Len(t, w.past, 1)
	w.lastAt = w.lastAt.Add(-lookEvery)
	w.next()
	require.Equal(t, int64(2), all.Load())
	require.Len(t, w.past, 2)
}

// The rules are read again when the file changes; a bad file changes nothing, and its
// faults are told by line.
func TestWatchRules(t *testing.T) {
	of := watched(t, "redis://"+servertest.Redis(t))
	source := ofWatched(t, of)
	before := source.rules()
	require.Len(t, before.Rules, 2)
	require.Equal(t, []string{"a denial bans for 1h"}, before.Rules[0].Notes)
	write := func(text string) { require.NoError(t, os.WriteFile(of.File, []byte(text), 0o600)) }

	write("events:\n  signup:\n    ip: {limits: x/m}\n")
	var now ruleList
	require.Eventually(t, func() bool { now = source.rules(); return len(now.Faults) > 0 }, time.Minute, 50*time.Millisecond)
	require.Contains(t, now.Faults[0], "rules.yaml:3: events.signup.ip.limits: ")
	require.Equal(t, before.Rules, now.Rules)

	write("events:\n  login:\n    user: {limits: 7/h}\n") // signup is gone
	require.Eventually(t, func() bool { now = source.rules(); return len(now.Faults) == 0 }, time.Minute, 50*time.Millisecond)
	require.Len(t, now.Rules, 1)
	require.Equal(t, "login", now.Rules[0].Event)
	require.Equal(t, "7/h", now.Rules[0].Limits)
}

// The page is there with and without a store; a limiter of this process has decisions.
func TestWatchPage(t *testing.T) {
	page := func(s *web.Site) string {
		r := httptest.NewRequest("GET", "http://localhost/watch", nil)
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, r)
		require.Equal(t, 200, answer.Code)
		return answer.Body.String()
	}
	text := page(siteOf(t, OfLimiter(service(t).Limiter, nil)))
	require.Contains(t, text, `<strong id="store">the memory of this program</strong>`)
	require.Contains(t, text, `<span>this program</span>`)

	text = page(siteOf(t, ofWatched(t, watched(t, "redis://ops:pepper@127.0.0.1:1/0"))))
	require.Contains(t, text, `<strong id="store">redis://127.0.0.1:1/0</strong>`)
	require.Contains(t, text, `id="no-status"`)
	require.NotContains(t, text, "pepper")

	lim := service(t)
	w := looks(t, OfLimiter(lim.Limiter, lim.numbers))
	w.look(t.Context())
	hit(t, lim.Limiter, "203.0.113.9", "ada")
	l := w.look(t.Context())
	require.Greater(t, l.Rates["admitted"], 0.0)
	require.Empty(t, l.Servers)
	for _, c := range l.Conditions {
		require.Equal(t, holds, c.State, c.Name)
	}
	require.Equal(t, "One limiter counts, with these rules.", l.condition(t, "All callers count alike").Why)
	key := try.To(w.source.key(t.Context(), "signup", "ip", "203.0.113.9", ""))(t)
	require.Equal(t, int64(1), key.Limits[0].Used)
}
