package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/servertest"
)

// The page has a row for each kind of request on each store, with the numbers of both.
func TestMeasure(t *testing.T) {
	long.Only(t, "builds the reference, half a minute; the tests of package envoy have what it gets wrong")
	stage := &servertest.Stage{}
	defer stage.End()
	page, err := measure(stage, 2*warmUp, 1)
	require.NoError(t, err)
	require.Len(t, regexp.MustCompile(`(?m)^\| (admitted|denied)[^|]*( \| [0-9.*]+){9} \|$`).FindAllString(page, -1), 2*len(cases), page)
}
