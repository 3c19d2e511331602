package site

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// markdown is GitHub's, with the HTML of the pages as it is. Columns are aligned by an
// attribute: the policy forbids a style.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Linkify, extension.Strikethrough, extension.TaskList,
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
	goldmark.WithRendererOptions(html.WithUnsafe()),
)

// page is a page of Markdown.
type page struct {
	Source   string // from the root of the repository
	File     string // from the root of the site
	Title    string // its first heading
	Headings []heading

	text []byte
	tree ast.Node
}

// heading is a heading below the first.
type heading struct {
	ID, Text string
	Level    int
}

// section is an entry of the index of the search: the text below a heading.
type section struct {
	File    string `json:"file"` // with the anchor of the heading
	Title   string `json:"title"`
	Heading string `json:"heading,omitempty"`
	Text    string `json:"text"`
}

// readme is the page of README in the root, whose index.html is the page of scenes.
const readme = "readme.html"

// fileOf returns the file of a page: README is the page of its folder.
func fileOf(source string) string {
	folder, name := path.Split(source)
	if source == "README.md" {
		return readme
	}
	if name == "README.md" {
		return folder + "index.html"
	}
	return folder + strings.TrimSuffix(name, ".md") + ".html"
}

func parse(root fs.FS, source string) (*page, error) {
	content, err := fs.ReadFile(root, source)
	if err != nil {
		return nil, err
	}
	p := &page{Source: source, File: fileOf(source), text: content, tree: markdown.Parser().Parse(text.NewReader(content))}
	names := anchors{}
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		h, is := n.(*ast.Heading)
		if !is {
			continue
		}
		title := p.textOf(h)
		id := names.of(title)
		h.SetAttributeString("id", []byte(id))
		if p.Title == "" {
			p.Title = title
		} else {
			p.Headings = append(p.Headings, heading{id, title, h.Level})
		}
	}
	if p.Title == "" {
		return nil, fmt.Errorf("%s: the page has no heading", source)
	}
	return p, nil
}

// anchors are the anchors of a page that were used, each with the number of its uses.
type anchors map[string]int

var unnamed = regexp.MustCompile(`[^\p{L}\p{M}\p{N}\p{Pc} -]`)

// of returns the anchor that GitHub gives to a heading.
func (a anchors) of(title string) string {
	id := strings.ReplaceAll(unnamed.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
	n, used := a[id]
	a[id]++
	if !used {
		return id
	}
	id = fmt.Sprintf("%s-%d", id, n)
	a[id]++
	return id
}

// textOf returns the text of a node, with a blank between blocks.
func (p *page) textOf(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // no step of it fails
		if !entering {
			if n.Type() == ast.TypeBlock || n.Kind() == extast.KindTableCell {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(p.text))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.AutoLink:
			b.Write(n.Label(p.text))
		case *ast.CodeBlock, *ast.FencedCodeBlock:
			b.Write(n.Lines().Value(p.text))
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// render renders a page, and returns its sections.
func (s *site) render(p *page) (body template.HTML, all []section, err error) {
	err = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		var err error
		switch n := n.(type) {
		case *ast.Link:
			n.Destination, err = s.link(p, n.Destination)
		case *ast.Image:
			n.Destination, err = s.link(p, n.Destination)
		}
		return ast.WalkContinue, err
	})
	if err != nil {
		return "", nil, err
	}
	all = append(all, section{File: p.File, Title: p.Title})
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if h, is := n.(*ast.Heading); !is {
			all[len(all)-1].Text += p.textOf(n) + " "
		} else if name := p.textOf(h); name != p.Title {
			id, _ := h.AttributeString("id")
			all = append(all, section{p.File + "#" + string(id.([]byte)), p.Title, name, ""})
		}
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.text, p.tree); err != nil {
		return "", nil, err
	}
	return template.HTML(b.String()), all, nil
}

// link returns where a link of a page leads on the site: to another page, to a
// picture, or to a file or folder of the repository at its public address.
func (s *site) link(p *page, destination []byte) ([]byte, error) {
	to, err := url.Parse(string(destination))
	if err != nil || to.Scheme != "" || to.Path == "" {
		return destination, err
	}
	target := path.Join(path.Dir(p.Source), to.Path)
	found, err := fs.Stat(s.root, target)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", destination, err)
	}
	kind, other := "blob", s.pages[target]
	if found.IsDir() {
		kind, other = "tree", s.pages[path.Join(target, "README.md")]
	}
	switch {
	case other != nil:
		to.Path = p.To(other.File)
	case s.pictures[target]:
		to.Path = p.To(target)
	default:
		public, err := url.Parse(s.address + "/" + kind + "/main/" + target)
		if err != nil {
			return nil, err
		}
		public.Fragment = to.Fragment
		to = public
	}
	return []byte(to.String()), nil
}

// To returns the way from the page to a file of the site.
func (p *page) To(file string) string {
	to, err := filepath.Rel(path.Dir(p.File), file)
	if err != nil {
		return file // both are relative to the site, so there is a way
	}
	return filepath.ToSlash(to)
}
