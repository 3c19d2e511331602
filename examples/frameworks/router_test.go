package frameworks

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// Requests of the tests: to a route, to a path without a route, to a route with
// another method.
const found, wrongPath, wrongMethod = "found", "wrong path", "wrong method"

const path = "/tenants/{id}/users"

// TestRouters puts a middleware into each router and sends the same requests to
// each router. limited lists the requests for which the router calls the
// middleware.
func TestRouters(t *testing.T) {
	type middleware = func(http.Handler) http.Handler
	for _, row := range []struct {
		name    string
		build   func(middleware) http.Handler
		pattern string
		limited []string
	}{
		{"ServeMux, one route", func(m middleware) http.Handler { return serveMux(m) }, "POST " + path, []string{found}},
		{"ServeMux, around", func(m middleware) http.Handler { return m(serveMux(unchanged)) }, "POST " + path, []string{found, wrongPath, wrongMethod}},
		{"chi, Use", func(m middleware) http.Handler {
			r := chi.NewRouter()
			r.Use(m)
			r.Post(path, chiHandler)
			return r
		}, path, []string{found, wrongPath, wrongMethod}},
		{"chi, With", func(m middleware) http.Handler {
			r := chi.NewRouter()
			r.With(m).Post(path, chiHandler)
			return r
		}, path, []string{found}},
		{"chi, Use in a group", func(m middleware) http.Handler {
			r := chi.NewRouter()
			r.Route("/tenants/{id}", func(r chi.Router) {
				r.Use(m)
				r.Post("/users", chiHandler)
			})
			return r
		}, path, []string{found, wrongMethod}},
		{"gorilla/mux, Use", func(m middleware) http.Handler {
			r := mux.NewRouter()
			r.Use(m)
			r.HandleFunc(path, muxHandler).Methods("POST")
			return r
		}, path, []string{found}},
		{"gorilla/mux, around", func(m middleware) http.Handler {
			r := mux.NewRouter()
			r.HandleFunc(path, muxHandler).Methods("POST")
			return m(r)
		}, path, []string{found, wrongPath, wrongMethod}},
	} {
		t.Run(row.name, func(t *testing.T) {
			limited, plain := serve(t, row.build(fiveADay(t))), serve(t, row.build(unchanged))
			const form = "email=a%40b.example&name=A"
			for i := range 7 {
				status, header, body := limited("POST", "/tenants/7/users", form)
				if i >= 5 {
					require.Equal(t, 429, status)
					continue
				}
				require.Equal(t, 200, status)
				require.NotEmpty(t, header.Get("RateLimit"))
				require.Equal(t, fmt.Sprintf("7 %s %s true %d", row.pattern, form, 4-i), body)
			}
			for _, miss := range []struct {
				name, method, path string
				status             int
			}{
				{wrongPath, "POST", "/nowhere", 404},
				{wrongMethod, "PUT", "/tenants/7/users", 405},
			} {
				wantStatus, wantHeader, wantBody := plain(miss.method, miss.path, "email=c%40d.example")
				require.Equal(t, miss.status, wantStatus)
				for range 7 { // refunded each time
					status, header, body := limited(miss.method, miss.path, "email=c%40d.example")
					require.Equal(t, slices.Contains(row.limited, miss.name), header.Get("RateLimit") != "", miss.name)
					header.Del("RateLimit")
					header.Del("RateLimit-Policy")
					require.Equal(t, wantStatus, status)
					require.Equal(t, wantHeader, header)
					require.Equal(t, wantBody, body)
				}
			}
		})
	}
}

func unchanged(h http.Handler) http.Handler { return h }

func serveMux(m func(http.Handler) http.Handler) *http.ServeMux {
	r := http.NewServeMux()
	r.Handle("POST "+path, m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, r.PathValue("id"), r.Pattern)
	})))
	return r
}

func chiHandler(w http.ResponseWriter, r *http.Request) {
	answer(w, r, chi.URLParam(r, "id"), chi.RouteContext(r.Context()).RoutePattern())
}

func muxHandler(w http.ResponseWriter, r *http.Request) {
	pattern, _ := mux.CurrentRoute(r).GetPathTemplate()
	answer(w, r, mux.Vars(r)["id"], pattern)
}

// answer writes a handler's knowledge of r: route, body and verdict.
func answer(w http.ResponseWriter, r *http.Request, id, pattern string) {
	body, _ := io.ReadAll(r.Body)
	v, ok := httplimit.VerdictOf(r.Context(), "signup")
	fmt.Fprint(w, id, " ", pattern, " ", string(body), " ", ok, " ", v.Remaining)
}

// fiveADay limits sign-ups by e-mail address, at a fixed time, and refunds an
// answer of 400 and above.
func fiveADay(t *testing.T) func(http.Handler) http.Handler {
	lim, _ := limitertest.New(t, limiter.Rule{Event: "signup", Kind: "email", Limits: counter.MustLimits("5/d")})
	limit, err := httplimit.New(httplimit.Config{
		Limiter:  lim,
		Event:    "signup",
		Features: []httplimit.Source{httplimit.Email(httplimit.Form("email"))},
		Show:     []string{"email"},
		RefundIf: func(status int) bool { return status >= 400 },
	})
	require.NoError(t, err)
	return limit
}

// serve starts a server for h; the function that serve returns sends a form to
// the server, and leaves the Date out of the header of the answer.
func serve(t *testing.T, h http.Handler) func(method, path, form string) (int, http.Header, string) {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return func(method, path, form string) (int, http.Header, string) {
		r, err := http.NewRequest(method, server.URL+path, strings.NewReader(form))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		got, err := server.Client().Do(r)
		require.NoError(t, err)
		defer got.Body.Close()
		body, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		got.Header.Del("Date")
		return got.StatusCode, got.Header, string(body)
	}
}
