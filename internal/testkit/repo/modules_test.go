package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var required = regexp.MustCompile(`(?m)^(?:require )?\t?([\w./-]+\.[\w./-]+) (v\S+)`)

// The modules with tests require one version of what they share: a package that depends
// on two is compiled twice, go-redis in half a minute.
func TestModulesAgree(t *testing.T) {
	type version struct{ number, file string }
	versions, shared := map[string]version{}, 0
	require.NoError(t, walk("../../..", func(folder, path string) error {
		if filepath.Base(path) != "go.mod" || folder == "tools" {
			return nil
		}
		file, err := os.ReadFile(path)
		for _, m := range required.FindAllStringSubmatch(string(file), -1) {
			first, seen := versions[m[1]]
			if !seen {
				versions[m[1]] = version{m[2], path}
				continue
			}
			shared++
			assert.Equal(t, first.number, m[2], "%s in %s and %s", m[1], first.file, path)
		}
		return err
	}))
	require.NotZero(t, shared)
}
