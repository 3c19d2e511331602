// Package document reads files of YAML, and finds the line of a fault.
package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Parse returns the root of the only document of data, which is YAML or JSON in UTF-8 of
// at most largest bytes. An error has a line, counted from 1. want names the content of
// the document in errors: "rules under the key events".
func Parse(data []byte, largest int, want string) (root *yaml.Node, line int, err error) {
	switch bad := invalid(data); {
	case len(data) > largest:
		return nil, 1, fmt.Errorf("the file has more than %d bytes, want at most as many", largest)
	case len(bytes.TrimSpace(data)) == 0:
		return nil, 1, fmt.Errorf("the file is empty, want %s", want)
	case bad >= 0:
		return nil, 1 + bytes.Count(data[:bad], []byte("\n")), fmt.Errorf("a byte that is not UTF-8, want a file in UTF-8")
	}
	if json.Valid(data) {
		data = escapes.ReplaceAllFunc(data, unescape)
	}
	in := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err = in.Decode(&first); err == io.EOF {
		return nil, 1, fmt.Errorf("the file has comments only, want %s", want)
	}
	if err == nil {
		if err = in.Decode(&second); err == nil {
			return nil, second.Line, fmt.Errorf("a second document begins here, want one document")
		}
	}
	if err != io.EOF {
		line, problem := explain(data, err)
		return nil, line, fmt.Errorf("%s", problem)
	}
	return first.Content[0], 0, nil
}

// escapes are the escapes in text of JSON; a pair of UTF-16 is a single one.
var escapes = regexp.MustCompile(`\\u[dD][89abAB][[:xdigit:]]{2}\\u[dD][c-fC-F][[:xdigit:]]{2}|\\.`)

// unescape writes out the escapes of JSON that YAML does not have.
func unescape(escape []byte) []byte {
	if len(escape) == 2 && escape[1] != '/' {
		return escape
	}
	var text string
	_ = json.Unmarshal(slices.Concat([]byte{'"'}, escape, []byte{'"'}), &text) // text of JSON
	return []byte(text)
}

// invalid is the offset of the first byte that is not UTF-8, or below zero.
func invalid(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

var (
	located = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
	byTab   = regexp.MustCompile(`^ *\t`)
)

// explain returns the line and the text of an error of the YAML parser. The parser
// tells the line where the surrounding mapping begins, the line before, or none; so
// the line is looked for where the parser stops reading: behind the last lines
// nearby that are a document by themselves.
func explain(data []byte, err error) (int, string) {
	told, problem := 0, err.Error()
	if m := located.FindStringSubmatch(problem); m != nil {
		told, _ = strconv.Atoi(m[1])
		problem = m[2]
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	in := &bytewise{data: data}
	_ = documents(in)
	last := min(1+bytes.Count(data[:max(0, in.read-lookahead)], []byte("\n")), len(lines))
	line := last
	if in.read == len(data) && told > 0 {
		line = told
	}
	for n := last; n >= max(0, last-8); n-- {
		if documents(bytes.NewReader(bytes.Join(lines[:n], nil))) == nil {
			line = n + 1
			break
		}
	}
	if line = min(line, len(lines)); byTab.Match(lines[line-1]) {
		return line, "a tab in the indentation, want spaces"
	}
	return line, "YAML: " + strings.ReplaceAll(problem, "yaml: ", "")
}

// lookahead is the number of bytes that the YAML parser reads beyond a token.
const lookahead = 3

// documents parses all documents.
func documents(r io.Reader) error {
	for in := yaml.NewDecoder(r); ; {
		var n yaml.Node
		if err := in.Decode(&n); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// bytewise is a reader of data, a byte at a time, that counts the bytes.
type bytewise struct {
	data []byte
	read int
}

func (b *bytewise) Read(p []byte) (int, error) {
	if b.read == len(b.data) {
		return 0, io.EOF
	}
	n := copy(p[:min(1, len(p))], b.data[b.read:])
	b.read += n
	return n, nil
}
