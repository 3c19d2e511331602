package httplimit_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/httplimit"
)

// TestRouters puts one middleware where each router has its place for it, and
// sends each the same requests. limited is where the router asks the middleware.
func TestRouters(t *testing.T) {
	tenant := func(w http.ResponseWriter, id, extra string, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		v, ok := httplimit.VerdictOf(r.Context(), "signup")
		fmt.Fprint(w, id, " ", extra, " ", string(body), " ", ok, " ", v.Remaining)
	}
	serveMux := func(wrap func(http.Handler) http.Handler) *http.ServeMux {
		m := http.NewServeMux()
		m.Handle("POST /tenants/{id}/users", wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tenant(w, r.PathValue("id"), r.Pattern, r)
		})))
		return m
	}
	chiHandler := func(w http.ResponseWriter, r *http.Request) {
		tenant(w, chi.URLParam(r, "id"), chi.RouteContext(r.Context()).RoutePattern(), r)
	}
	muxHandler := func(w http.ResponseWriter, r *http.Request) {
		path, _ := mux.CurrentRoute(r).GetPathTemplate()
		tenant(w, mux.Vars(r)["id"], path, r)
	}
	unchanged := func(h http.Handler) http.Handler { return h }
	const found, wrongPath, wrongMethod = "found", "wrong path", "wrong method"
	for _, row := range []struct {
		name    string
		build   func(limit func(http.Handler) http.Handler) http.Handler
		pattern string
		limited []string
	}{
		{"ServeMux, one route", func(limit func(http.Handler) http.Handler) http.Handler { return serveMux(limit) },
			"POST /tenants/{id}/users", []string{found}},
		{"ServeMux, around", func(limit func(http.Handler) http.Handler) http.Handler { return limit(serveMux(unchanged)) },
			"POST /tenants/{id}/users", []string{found, wrongPath, wrongMethod}},
		{"chi, Use", func(limit func(http.Handler) http.Handler) http.Handler {
			r := chi.NewRouter()
			r.Use(limit)
			r.Post("/tenants/{id}/users", chiHandler)
			return r
		}, "/tenants/{id}/users", []string{found, wrongPath, wrongMethod}},
		{"chi, With", func(limit func(http.Handler) http.Handler) http.Handler {
			r := chi.NewRouter()
			r.With(limit).Post("/tenants/{id}/users", chiHandler)
			return r
		}, "/tenants/{id}/users", []string{found}},
		{"chi, Use in a group", func(limit func(http.Handler) http.Handler) http.Handler {
			r := chi.NewRouter()
			r.Route("/tenants/{id}", func(r chi.Router) {
				r.Use(limit)
				r.Post("/users", chiHandler)
			})
			return r
		}, "/tenants/{id}/users", []string{found, wrongMethod}},
		{"gorilla/mux, Use", func(limit func(http.Handler) http.Handler) http.Handler {
			r := mux.NewRouter()
			r.Use(limit)
			r.HandleFunc("/tenants/{id}/users", muxHandler).Methods("POST")
			return r
		}, "/tenants/{id}/users", []string{found}},
		{"gorilla/mux, around", func(limit func(http.Handler) http.Handler) http.Handler {
			r := mux.NewRouter()
			r.HandleFunc("/tenants/{id}/users", muxHandler).Methods("POST")
			return limit(r)
		}, "/tenants/{id}/users", []string{found, wrongPath, wrongMethod}},
	} {
		t.Run(row.name, func(t *testing.T) {
			limit := newLimit(t, httplimit.Config{
				Limiter: newLimiter(t, newClock(), by("email", "5/d")), Features: []httplimit.Feature{byEmail}, Show: []string{"email"},
				RefundIf: func(status int) bool { return status >= 400 },
			})
			limited, plain := newSite(t, row.build(limit)), newSite(t, row.build(unchanged))
			const form = "email=a%40b.example&name=A"
			for i := range 7 {
				want := fmt.Sprintf("7 %s %s true %d", row.pattern, form, 4-i)
				got := limited.do("POST", "/tenants/7/users", form, asForm)
				if i >= 5 {
					require.Equal(t, 429, got.status)
					continue
				}
				require.Equal(t, 200, got.status)
				require.Equal(t, want, got.body)
			}
			for what, path := range map[string]string{wrongPath: "/nowhere", wrongMethod: "/tenants/7/users"} {
				method := map[string]string{wrongPath: "POST", wrongMethod: "PUT"}[what]
				want := plain.do(method, path, "email=c%40d.example", asForm)
				require.Equal(t, map[string]int{wrongPath: 404, wrongMethod: 405}[what], want.status)
				for range 7 { // given back each time
					got := limited.do(method, path, "email=c%40d.example", asForm)
					require.Equal(t, slices.Contains(row.limited, what), got.header.Get("RateLimit") != "", what)
					for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "Date"} {
						got.header.Del(name)
						want.header.Del(name)
					}
					require.Equal(t, want, got)
				}
			}
		})
	}
}

// A Value can be what the router has found, where the middleware stands inside.
func TestPathValueIsAFeature(t *testing.T) {
	limit := newLimit(t, httplimit.Config{
		Limiter:  newLimiter(t, newClock(), by("tenant", "1/d")),
		Features: []httplimit.Feature{httplimit.By("tenant", func(r *http.Request) (string, error) { return r.PathValue("id"), nil })},
	})
	m := http.NewServeMux()
	m.Handle("GET /tenants/{id}", limit(welcome))
	s := newSite(t, m)
	require.Equal(t, 200, s.do("GET", "/tenants/7", "").status)
	require.Equal(t, 429, s.do("GET", "/tenants/7", "").status)
	require.Equal(t, 200, s.do("GET", "/tenants/8", "").status)
}
