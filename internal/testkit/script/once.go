package script

import (
	"embed"
	"io/fs"
	"path"
)

//go:embed testdata/*.script
var once embed.FS

// Once returns the scripts that once failed, by the names of their files in
// testdata.
func Once() (map[string]Script, error) {
	scripts := map[string]Script{}
	files, err := fs.Glob(once, "testdata/*")
	for _, file := range files {
		text, _ := once.ReadFile(file) // is there
		s, err := Parse(string(text))
		if err != nil {
			return nil, err
		}
		scripts[path.Base(file)] = s
	}
	return scripts, err
}
