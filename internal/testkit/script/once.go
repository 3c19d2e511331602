package script

import "embed"

//go:embed testdata/*.script
var once embed.FS

// Once returns the scripts that once failed, by the names of their files in
// testdata.
func Once() map[string]Script {
	scripts := map[string]Script{}
	files, _ := once.ReadDir("testdata") // is there, and so are its files
	for _, file := range files {
		text, _ := once.ReadFile("testdata/" + file.Name())
		s, err := Parse(string(text))
		if err != nil {
			panic(err)
		}
		scripts[file.Name()] = s
	}
	return scripts
}
