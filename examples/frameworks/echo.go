package frameworks

import (
	"log"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/abacus-go/abacus/httplimit"
)

// EchoLogin is a log-in that counts failures only. The error of a handler is
// answered when the middleware has returned, so the handler says itself what was no
// failure.
func EchoLogin(e *echo.Echo, limit func(http.Handler) http.Handler, right func(user, password string) bool) {
	e.POST("/login", func(c echo.Context) error {
		if !right(c.FormValue("user"), c.FormValue("password")) {
			return echo.NewHTTPError(http.StatusUnauthorized, "Wrong user or password.")
		}
		if err := httplimit.Refund(c.Request().Context(), "login"); err != nil {
			log.Print(err) // the log-in is good all the same, but was counted
		}
		return c.String(http.StatusOK, "Welcome.")
	}, echo.WrapMiddleware(limit))
}
