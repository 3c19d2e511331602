package frameworks

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/abacus-go/abacus/httplimit"
)

// Gin makes a middleware of package httplimit a middleware of gin. Handlers answer
// on c.Writer, past the middleware: they call httplimit.Refund, since
// httplimit.Config.RefundIf hears of no answer.
func Gin(limit func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		admitted := false
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			admitted = true
			c.Request = r // has the verdict in its context, by Config.VerdictInContext
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

// GinLogin is a log-in that counts failures only.
func GinLogin(router gin.IRoutes, limit func(http.Handler) http.Handler, right func(user, password string) bool) {
	router.POST("/login", Gin(limit), func(c *gin.Context) {
		if !right(c.PostForm("user"), c.PostForm("password")) {
			c.String(http.StatusUnauthorized, "Wrong user or password.")
			return
		}
		if err := httplimit.Refund(c.Request.Context(), "login"); err != nil {
			log.Print(err) // the log-in is good all the same, but was counted
		}
		c.String(http.StatusOK, "Welcome.")
	})
}
