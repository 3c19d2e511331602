// Package serve is the site of demo serve: a race of limiters with the rods of a
// key, a small site under real limits, and a watch over the site's own limiter.
package serve

import (
	"context"
	"embed"

	"github.com/abacus-go/abacus/cmd/internal/watch"
	"github.com/abacus-go/abacus/cmd/internal/web"
)

//go:embed pages
var files embed.FS

// Pages are the pages of the site.
var Pages = []web.Page{
	{Name: "race", Path: "/", Link: "The race and the rods", Files: files},
	{Name: "site", Path: "/site", Link: "Be denied yourself", Files: files},
	watch.Page,
}

// Server is the handler of the site.
type Server struct {
	*web.Site
	races races
	site  site
}

// New makes a Server, which works until ctx is done.
func New(ctx context.Context) (*Server, error) {
	s := &Server{Site: web.New(ctx, Pages...)}
	s.addRace()
	if err := s.addSite(); err != nil {
		return nil, err
	}
	watch.OfLimiter(s.site.limiter, s.site.numbers).Add(ctx, s.Site)
	return s, nil
}
