package redis

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/try"
)

var update = flag.Bool("update", false, "write testdata/library.lua")

// The library as the server runs it. It has every part of every script.
func TestLibrary(t *testing.T) {
	const file = "testdata/library.lua"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(scripts().library), 0o666))
	}
	golden := try.To(os.ReadFile(file))(t)
	require.Equal(t, string(golden), scripts().library, "%s: run go test -update, and look at the difference", file)
}

// A script has the same parts as its function, and no other line.
func TestScripts(t *testing.T) {
	lines := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			all = append(all, strings.TrimSpace(line))
		}
		return all
	}
	for _, sc := range []program{scripts().take, scripts().do, scripts().forget} {
		require.Subset(t, lines(scripts().library), lines(sc.Text()))
	}
}

// Each name is used, and stands in no longer word: the scripts have no such word but
// commands of the server.
func TestNames(t *testing.T) {
	files := try.To(luaFiles.ReadDir("lua"))(t)
	text := ""
	for _, file := range files {
		text += lua(strings.TrimSuffix(file.Name(), ".lua"))
	}
	for _, value := range names {
		text += value + "\n"
	}
	words := regexp.MustCompile(`[A-Z]+`).FindAllString(regexp.MustCompile(`--.*`).ReplaceAllString(text, ""), -1)
	for name := range names {
		require.Contains(t, words, name)
		for _, word := range words {
			_, is := names[word]
			require.False(t, !is && strings.Contains(word, name), "%s in %s", name, word)
		}
	}
}
