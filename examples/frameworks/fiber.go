package frameworks

import (
	"context"
	"fmt"
	"log"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/httplimit"
	"github.com/abacus-go/abacus/limiter"
)

// FiberLogin is a log-in that counts failures only. Fiber is not net/http, so the
// Limiter is asked without a middleware. clientIP finds the client's address.
func FiberLogin(app *fiber.App, lim *limiter.Limiter, clientIP httplimit.ClientIP, right func(user, password string) bool) {
	app.Post("/login", func(c fiber.Ctx) error {
		user := strings.Clone(c.FormValue("user")) // fiber writes the next request over this one
		var lines []string
		for _, line := range c.Request().Header.PeekAll(fiber.HeaderXForwardedFor) {
			lines = append(lines, string(line))
		}
		addr := clientIP.Find(c.RequestCtx().RemoteAddr().String(), lines) // c.IP() may be text of the client
		v, err := lim.Allow(c.Context(), "login", feature.New("user", user), feature.IP(addr))
		switch {
		case err != nil:
			return err // 500
		case !v.Allowed:
			return fiberDenial(c, &v)
		case !right(user, c.FormValue("password")):
			return fiber.NewError(fiber.StatusUnauthorized, "Wrong user or password.")
		}
		if err := lim.Refund(context.WithoutCancel(c.Context()), &v); err != nil {
			log.Print(err) // the log-in is good all the same, but was counted
		}
		return c.SendString("Welcome.")
	})
}

// fiberDenial answers a request that v denies.
func fiberDenial(c fiber.Ctx, v *limiter.Verdict) error {
	if v.RetryAfter != counter.Never {
		c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(int64((v.RetryAfter+time.Second-1)/time.Second), 10))
	}
	switch v.Outcome() {
	case limiter.OutcomeMissing:
		return fiber.NewError(fiber.StatusBadRequest, fmt.Sprintf("The field %q is required.", v.Missing))
	case limiter.OutcomeFailedClosed:
		return fiber.ErrServiceUnavailable
	}
	return fiber.ErrTooManyRequests
}
