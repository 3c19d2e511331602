package redis

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/*.lua")

// The scripts as the server runs them.
func TestScripts(t *testing.T) {
	for name, s := range map[string]interface{ Text() string }{"take": takeScript, "do": doScript, "forget": forgetScript, "library": library} {
		file := "testdata/" + name + ".lua"
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(s.Text()), 0o666))
		}
		golden, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(golden), s.Text(), "%s: run go test -update, and look at the difference", file)
	}
}

// Each name is used, and stands in no longer word: the scripts have no such word but
// commands of the server.
func TestNames(t *testing.T) {
	files, err := luaFiles.ReadDir("lua")
	require.NoError(t, err)
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
