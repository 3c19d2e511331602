package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"html/template"
	"io"
	"slices"
	"strings"
)

// properties are the style properties of a drawing that become attributes, and
// those that the page's own style decides instead.
var properties = map[string]string{
	"stroke-width":      "stroke-width",
	"stroke-dasharray":  "stroke-dasharray",
	"stroke-dashoffset": "stroke-dashoffset",
	"font-size":         "font-size",
	"font-family":       "",
	"font-variant":      "",
	"font-weight":       "",
	"font-style":        "",
}

// attributes are those that an element of a drawing keeps. An element that is
// not here is refused: a drawing is built of these four, whatever was written
// into it.
var attributes = map[string][]string{
	"svg":  {"viewBox"},
	"g":    {"transform"},
	"path": {"d"},
	"text": {"x", "y", "transform"},
}

// inline is a drawing of gonum's as an element of the page that says label to
// those who do not see it. Its marks become classes, so that the page's style
// colours it, and it has no style of its own, which the page's policy forbids.
// It is an error if the drawing has anything that is not known here.
func inline(drawing []byte, class, label string) (template.HTML, error) {
	var b strings.Builder
	d := xml.NewDecoder(bytes.NewReader(drawing))
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			return template.HTML(b.String()), nil
		} else if err != nil {
			return "", fmt.Errorf("page: drawing: %w", err)
		}
		switch t := token.(type) {
		case xml.StartElement:
			kept, known := attributes[t.Name.Local]
			if !known || t.Name.Space != "" {
				return "", fmt.Errorf("page: drawing: unknown element %q", t.Name.Local)
			}
			b.WriteString("<" + t.Name.Local)
			if t.Name.Local == "svg" {
				attribute(&b, "class", class)
				attribute(&b, "role", "img")
				attribute(&b, "aria-label", label)
			}
			for _, a := range t.Attr {
				if a.Name.Local == "style" {
					if err := restyle(&b, a.Value); err != nil {
						return "", err
					}
				} else if slices.Contains(kept, a.Name.Local) {
					attribute(&b, a.Name.Local, a.Value)
				}
			}
			b.WriteString(">")
		case xml.EndElement:
			b.WriteString("</" + t.Name.Local + ">")
		case xml.CharData:
			if s := strings.TrimSpace(string(t)); s != "" {
				b.WriteString(html.EscapeString(s))
			}
		}
	}
}

func attribute(b *strings.Builder, name, value string) {
	fmt.Fprintf(b, ` %s="%s"`, name, html.EscapeString(value))
}

// restyle writes a style as attributes.
func restyle(b *strings.Builder, style string) error {
	var classes []string
	for property := range strings.SplitSeq(style, ";") {
		name, value, _ := strings.Cut(property, ":")
		switch name {
		case "fill", "stroke":
			if value == "none" {
				attribute(b, name, value)
				continue
			}
			ink, known := inkOf(value)
			if !known {
				return fmt.Errorf("page: drawing: %s %q is no ink", name, value)
			}
			classes = append(classes, name[:1]+"-"+palette[ink].name)
		default:
			to, known := properties[name]
			if !known {
				return fmt.Errorf("page: drawing: unknown style %q", property)
			}
			if to != "" {
				attribute(b, to, value)
			}
		}
	}
	if len(classes) > 0 {
		attribute(b, "class", strings.Join(classes, " "))
	}
	return nil
}
