package rules

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/document"
	"github.com/abacus-go/abacus/internal/words"
)

// decoder makes a Set from the nodes of a document, and collects all errors.
type decoder struct {
	document.Reader
	set    Set
	errs   []error          // each an *Error
	places []place          // of set.Rules
	count  *counter.Counter // for check
}

type field = document.Field

// place is the position of a rule in the file.
type place struct {
	path      string
	kind      int // the line of the kind
	node      *yaml.Node
	plans     []string // names of Rule.Plans
	overrides []int    // indexes of Rule.Overrides in the file
	whole     bool     // no error in the rule so far
}

// find returns the path that leads by steps, keys and indexes, from the rule in the
// given line on, and the line of its last part that is in the file.
func (p *place) find(line int, steps ...any) (int, string) {
	n, path := p.node, p.path
	for _, step := range steps {
		switch step := step.(type) {
		case int:
			n, path = n.Content[step], fmt.Sprintf("%s[%d]", path, step)
			line = n.Line
		case string:
			path = document.Join(path, step)
			if k, v := entry(n, step); k != nil {
				n, line = v, k.Line
			}
		}
	}
	return line, path
}

func (d *decoder) fail(line int, path, format string, args ...any) {
	d.errs = append(d.errs, &Error{d.set.file, max(1, line), path, fmt.Errorf(format, args...)})
}

// sound calls read, and reports whether read has found no error.
func (d *decoder) sound(read func()) bool {
	before := len(d.errs)
	read()
	return len(d.errs) == before
}

func (d *decoder) join() error {
	slices.SortStableFunc(d.errs, func(a, b error) int { return cmp.Compare(a.(*Error).Line, b.(*Error).Line) })
	return errors.Join(d.errs...)
}

// unmarshal reads text into v.
func (d *decoder) unmarshal(n *yaml.Node, path, want string, v encoding.TextUnmarshaler) {
	if text, ok := d.Text(n, path, want); ok {
		if err := v.UnmarshalText([]byte(text)); err != nil {
			d.fail(n.Line, path, "%s", inFile(err.Error(), nil))
		}
	}
}

// limits reads the limits of a key of a mapping. In braces a comma ends a value: the limits
// behind it are keys without values, and belong to the fault of the value.
func (d *decoder) limits(in, n *yaml.Node, path string) (limits counter.Limits) {
	text, next := n.Value, slices.Index(in.Content, n)+1
	for in.Style&yaml.FlowStyle != 0 && next+1 < len(in.Content) && in.Content[next+1].ShortTag() == "!!null" {
		more := text + ", " + in.Content[next].Value
		if _, err := counter.ParseLimits(more); err != nil {
			break
		}
		text, in.Content = more, slices.Delete(in.Content, next, next+2)
	}
	d.Want(text == n.Value, n.Line, path, "inside { } a comma ends the value, want it in quotes: %q", text)
	n.Value = text
	d.unmarshal(n, path, `limits, such as "5/m, 100/d"`, &limits)
	return limits
}

// require wants all of the keys in a mapping.
func (d *decoder) require(n *yaml.Node, path string, keys ...string) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		return
	}
	for _, key := range keys {
		k, _ := entry(n, key)
		d.Want(k != nil, n.Line, path, "the key %s is missing", key)
	}
}

// entry returns a key of a mapping, and its value; nil if there is none.
func entry(n *yaml.Node, key string) (k, v *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// oneOf wants one of the keys, and not false.
func (d *decoder) oneOf(n *yaml.Node, path string, keys ...string) {
	var has []string
	for _, key := range keys {
		_, v := entry(n, key)
		if v == nil {
			continue
		}
		has = append(has, key)
		d.Want(v.ShortTag() != "!!bool" || v.Value != "false", v.Line, document.Join(path, key), "the value is false, want true, or no such key")
	}
	d.Want(len(has) == 1, n.Line, path, "the override has %s, want one of %s", words.Quoted(has), strings.Join(keys, ", "))
}
