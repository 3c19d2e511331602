package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parse returns the only document of data, nil after an error.
func (d *decoder) parse(data []byte) *yaml.Node {
	at := func(offset int) int { return 1 + bytes.Count(data[:offset], []byte("\n")) }
	switch bad := invalid(data); {
	case len(data) > MaxSize:
		d.fail(1, "", "the file has more than %d bytes, want at most as many", MaxSize)
		return nil
	case len(bytes.TrimSpace(data)) == 0:
		d.fail(1, "", "the file is empty, want rules under the key events")
		return nil
	case bad >= 0:
		d.fail(at(bad), "", "a byte that is not UTF-8, want a file in UTF-8")
		return nil
	}
	if json.Valid(data) {
		data = escapes.ReplaceAllFunc(data, unescape)
	}
	in := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	err := in.Decode(&document)
	if err == io.EOF {
		d.fail(1, "", "the file has comments only, want rules under the key events")
		return nil
	}
	if err == nil {
		if err = in.Decode(&second); err == nil {
			d.fail(second.Line, "", "a second document begins here, want one document")
			return nil
		}
	}
	if err != io.EOF {
		line, problem := d.explain(data, err)
		d.fail(line, "", "%s", problem)
		return nil
	}
	return document.Content[0]
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
func (d *decoder) explain(data []byte, err error) (int, string) {
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
		if err := in.Decode(&n); errors.Is(err, io.EOF) {
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
