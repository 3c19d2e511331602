package serve

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/internal/web"
)

// Of too many races the one is dropped that no page has a stream of, for longest.
func TestRacesAreDropped(t *testing.T) {
	var all races
	out := new(web.Stream)
	pass := func(name string) {
		r := all.find(name)
		if r == nil {
			r = &race{name: name}
		}
		all.hold(r, out)
		all.release(r, out)
	}
	all.hold(&race{name: "held"}, out)
	pass("left")
	pass("back")
	for i := range maxRaces - 3 {
		pass(fmt.Sprint(i))
	}
	pass("back")
	require.NotNil(t, all.find("left"))
	pass("one more")
	require.Nil(t, all.find("left"))
	pass("another")
	require.Nil(t, all.find("0"))
	for _, name := range []string{"held", "back", "1", "one more"} {
		require.NotNil(t, all.find(name), name)
	}
	require.Len(t, all.all, maxRaces)
}
