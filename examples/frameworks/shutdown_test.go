package frameworks

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/limitertest"
)

// A handler may give its own context to the Limiter, though the context ends with
// the server, in the middle of a call, and belongs to the next request afterwards.
func TestFiberStopsGracefully(t *testing.T) {
	var faults limitertest.Faults
	faults.Set(limitertest.Fault{Delay: 200 * time.Microsecond})
	lim, _ := limitertest.NewOn(t, struct{ backend.Store }{faults.Wrap(memory.New(memory.Config{}))},
		limiter.Config{Rules: []limiter.Rule{{Event: "login", Kind: "user", Limits: counter.MustLimits("1000000/h")}}})
	for range 10 {
		app, begun := fiber.New(), make(chan struct{}, 16)
		app.Get("/", func(c fiber.Ctx) error {
			begun <- struct{}{}
			for range 100 { // the server stops in the middle
				_, _ = lim.Allow(c.RequestCtx(), "login", feature.New("user", c.Query("user")))
			}
			return c.SendStatus(fiber.StatusNoContent)
		})
		url := serveFiber(t, app)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		var clients sync.WaitGroup
		for i := range cap(begun) {
			clients.Go(func() {
				if answer, err := client.Get(url + "?user=" + string(rune('a'+i))); err == nil {
					_ = answer.Body.Close()
				}
			})
		}
		for range cap(begun) {
			<-begun
		}
		require.NoError(t, app.Shutdown())
		clients.Wait()
	}
}
