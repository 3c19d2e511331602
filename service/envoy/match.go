package envoy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/abacus-go/abacus/counter"
)

// wildcard stands for any text in the value of a rule.
const wildcard = "*"

// entry is an entry of a descriptor.
type entry struct{ key, value string }

// node is a level of the rules of a domain.
type node struct {
	line     int    // in its file
	pattern  string // stands for all values that it matches, in what is counted; empty: each counts apart
	value    string
	metric   bool // the values of requests are labels
	rule     *rule
	exact    map[entry]*node
	wild     map[string][]*node // by key, in the order of the files
	fallback map[string]*node   // by key, whatever the value
}

// add adds levels below n, at a path and a depth. The error joins all faults.
func (n *node) add(file, path string, depth int, levels []level) error {
	var errs []error
	for i := range levels {
		l := &levels[i]
		rule, line, err := l.rule()
		next := &node{line: l.line(), value: l.Value.string, metric: l.ValueToMetric, rule: rule}
		below := path + "/" + escape(l.Key.string)
		if next.value != "" {
			below += "=" + escape(next.value)
		}
		old := n.put(l.Key.string, next)
		switch {
		case err != nil:
		case old != nil:
			line, err = next.line, fmt.Errorf("the descriptor with key %q and value %q is in line %d already, or of another file, want each once", l.Key.string, next.value, old.line)
		case depth == maxDepth:
			line, err = next.line, fmt.Errorf("more than %d levels of descriptors, want fewer", maxDepth)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", file, line, err))
			continue
		}
		if rule != nil {
			rule.kind = kindOf(below, rule.limits)
		}
		if l.ShareThreshold {
			next.pattern = next.value
		}
		errs = append(errs, next.add(file, below, depth+1, l.Descriptors))
	}
	return errors.Join(errs...)
}

// put puts next below n, and returns the node that is there already, or nil.
func (n *node) put(key string, next *node) *node {
	if n.exact == nil {
		n.exact, n.wild, n.fallback = map[entry]*node{}, map[string][]*node{}, map[string]*node{}
	}
	e := entry{key, next.value}
	if old := cmp.Or(n.exact[e], n.fallback[key]); old != nil && (old.value == next.value) {
		return old
	}
	switch {
	case next.value == "":
		n.fallback[key] = next
		return nil
	case strings.Contains(next.value, wildcard):
		n.wild[key] = append(n.wild[key], next)
	}
	n.exact[e] = next
	return nil
}

// match returns the rule of a descriptor, and appends to text the values under which it is
// counted. At each level the value is matched exactly, else by the first wildcard, else by
// its key alone. No rule has another depth than its descriptor.
func (n *node) match(entries []*common.RateLimitDescriptor_Entry, text []byte) (*rule, []byte) {
	for _, e := range entries {
		next := n.next(e.Key, e.Value)
		if next == nil {
			return nil, nil
		}
		value := e.Value
		if next.pattern != "" {
			value = next.pattern
		}
		text, n = appendText(text, value), next
	}
	return n.rule, text
}

// next returns the node below n for an entry, nil if there is none.
func (n *node) next(key, value string) *node {
	if next := n.exact[entry{key, value}]; next != nil {
		return next
	}
	if i := slices.IndexFunc(n.wild[key], func(w *node) bool { return glob(w.value, value) }); i >= 0 {
		return n.wild[key][i]
	}
	return n.fallback[key]
}

// appendText appends text with its length before it, so that no two lists of texts meet.
func appendText(dst []byte, text string) []byte {
	return append(append(strconv.AppendInt(dst, int64(len(text)), 10), ':'), text...)
}

// glob reports whether a pattern, whose wildcards stand for any text, matches text.
func glob(pattern, text string) bool {
	first, rest, _ := strings.Cut(pattern, wildcard)
	text, found := strings.CutPrefix(text, first)
	if !found {
		return false
	}
	for {
		part, after, more := strings.Cut(rest, wildcard)
		if !more {
			return strings.HasSuffix(text, part)
		}
		_, text, found = strings.Cut(text, part)
		if !found {
			return false
		}
		rest = after
	}
}

// maxKind is the length of a kind that is not cut: kinds are labels of metrics.
const maxKind = 200

// kindOf is the kind of the features of a rule: its path and its windows. The counts of a
// rule outlast every change but one of these.
func kindOf(path string, limits counter.Limits) string {
	windows := make([]string, len(limits))
	for i, limit := range limits {
		if windows[i] = limit.Per.String(); limit.Per == 0 {
			windows[i] = escape(limit.Period.String())
		}
	}
	slices.Sort(windows)
	if len(path) > maxKind {
		sum := sha256.Sum256([]byte(path))
		path = path[:maxKind/2] + "~" + hex.EncodeToString(sum[:16])
	}
	return path + "@" + strings.Join(windows, ",")
}

// escape writes text as a part of a kind, which is printable ASCII, and a path.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c > ' ' && c < '~' && !strings.ContainsRune("/=@%+:,", rune(c)):
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
