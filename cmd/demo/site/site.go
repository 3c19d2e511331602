// Package site writes the web site of the project as a folder of files, for any file
// server, at any path, under the Policy: the first page of demo serve, which runs in
// the browser, and the pages of README, docs and service.
package site

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/abacus-go/abacus/cmd/demo/internal/serve"
	"github.com/abacus-go/abacus/cmd/internal/web"
)

// Policy is the content security policy under which all pages work.
const Policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Config says what Write writes.
type Config struct {
	Root string // of the repository
	To   string // the folder, which is made; files in it that Write does not write stay

	// Short leaves out the module of WebAssembly, which takes long to build.
	Short bool
}

//go:embed pages
var files embed.FS

// group is a part of the list of all pages.
type group struct {
	Name   string
	Pages  []*page
	Folded bool // unless it has the page that is shown
}

// Has reports whether a file is a page of the group.
func (g group) Has(file string) bool {
	return slices.ContainsFunc(g.Pages, func(p *page) bool { return p.File == file })
}

// foldAbove is the number of pages above which a group is folded.
const foldAbove = 12

// sources are the pages by group, in order. All pages that a reader of the repository
// finds in docs are here, or Write fails.
var sources = []struct {
	name  string
	pages []string // of fs.Glob, from the root; a page is in the first group that has it
}{
	{"Start", []string{"README.md", "docs/getting-started.md", "docs/http.md", "docs/frameworks.md", "docs/recipes.md", "docs/rules.md"}},
	{"Run", []string{"docs/operating.md", "docs/sizing.md", "service/README.md", "service/docs/*.md", "docs/release.md"}},
	{"How it works", []string{"docs/design.md", "docs/guarantees.md", "docs/storage.md", "docs/backends.md", "docs/names.md"}},
	{"Reports", []string{"docs/reports/*.md"}},
	{"Decisions", []string{"docs/decisions/README.md", "docs/decisions/*.md"}},
}

// site is a site on its way.
type site struct {
	root     fs.FS
	address  string // of the repository, for people
	to       string
	groups   []group
	pages    map[string]*page // by source
	pictures map[string]bool
	index    []section
}

// Write writes the site, checks it, and returns the addresses outside of the site
// that its pages link to. The error names each link without a target.
func Write(cfg Config) (outside []string, err error) {
	s := &site{root: os.DirFS(cfg.Root), to: cfg.To, pages: map[string]*page{}, pictures: map[string]bool{}}
	if s.address, err = address(s.root); err != nil {
		return nil, err
	}
	if err := s.read(); err != nil {
		return nil, err
	}
	if err := s.writePages(); err != nil {
		return nil, err
	}
	if err := s.writeAssets(); err != nil {
		return nil, err
	}
	if !cfg.Short {
		if err := buildModule(cfg.Root, cfg.To); err != nil {
			return nil, err
		}
	}
	return Check(cfg.To)
}

// address returns the address of the repository, which is that of its module.
func address(root fs.FS) (string, error) {
	mod, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mod)) {
		if module, is := strings.CutPrefix(line, "module "); is {
			return "https://" + strings.TrimSpace(module), nil
		}
	}
	return "", errors.New("go.mod: no line begins with module")
}

// read reads all pages, so that each knows which others there are.
func (s *site) read() error {
	for _, from := range sources {
		g := group{Name: from.name}
		for _, pattern := range from.pages {
			names, err := fs.Glob(s.root, pattern)
			if err != nil {
				return err
			}
			if len(names) == 0 {
				return fmt.Errorf("%s: no such page", pattern)
			}
			for _, name := range names {
				if s.pages[name] != nil {
					continue
				}
				p, err := parse(s.root, name)
				if err != nil {
					return err
				}
				s.pages[name] = p
				g.Pages = append(g.Pages, p)
			}
		}
		g.Folded = len(g.Pages) > foldAbove
		s.groups = append(s.groups, g)
	}
	return fs.WalkDir(s.root, "docs", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".md" && s.pages[name] == nil {
			return fmt.Errorf("%s: the page is in no group of the site", name)
		}
		if path.Ext(name) == ".svg" {
			s.pictures[name] = true // of both colour schemes
		}
		return err
	})
}

// shown is the data of layout.html.
type shown struct {
	*page
	Groups  []group
	Body    template.HTML
	Address string
}

func (s *site) writePages() error {
	layout, err := template.ParseFS(files, "pages/layout.html")
	if err != nil {
		return err
	}
	for _, g := range s.groups {
		for _, p := range g.Pages {
			body, sections, err := s.render(p)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Source, err)
			}
			s.index = append(s.index, sections...)
			var b bytes.Buffer
			if err := layout.Execute(&b, shown{p, s.groups, body, s.address}); err != nil {
				return err
			}
			if err := s.write(p.File, b.Bytes()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *site) writeAssets() error {
	for name := range s.pictures {
		picture, err := fs.ReadFile(s.root, name)
		if err != nil {
			return err
		}
		if err := s.write(name, picture); err != nil {
			return err
		}
	}
	index, err := json.Marshal(s.index)
	if err != nil {
		return err
	}
	all, err := serve.Files(web.Page{Path: readme, Link: "Read me"}, web.Page{Path: "docs/getting-started.html", Link: "Getting started"})
	if err != nil {
		return err
	}
	for name, to := range map[string][]string{"site.css": {"abacus.css"}, "search.js": {"search.js", "abacus.js"}} {
		content, err := files.ReadFile("pages/" + name)
		if err != nil {
			return err
		}
		for _, to := range to { // the first page has the search, too
			all[to] += string(content)
		}
	}
	all["search.json"] = string(index)
	for name, content := range all {
		if err := s.write(name, []byte(content)); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) write(name string, content []byte) error {
	to := filepath.Join(s.to, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}
