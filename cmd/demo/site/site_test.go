package site

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/andybalholm/brotli"
	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

const root = "../../.."

// The site is whole: every link and anchor of every page is there, at any path of any
// file server, and no page has anything that the policy forbids.
func TestWrite(t *testing.T) {
	to := t.TempDir()
	outside := try.To(Write(Config{Root: root, To: to, Short: !long.Asked()}))(t)
	for _, address := range outside {
		t.Log(address)
		require.Regexp(t, "^(https?|mailto):", address)
	}
	require.Contains(t, outside, "https://github.com/abacus-go/abacus/blob/main/classic/textbooktiers.go", "a link of README")
	require.Contains(t, outside, "https://github.com/abacus-go/abacus/tree/main/httplimit", "a link of the guide")
	for _, file := range []string{"index.html", "docs/getting-started.html", "docs/decisions/index.html", "docs/decisions/tickets.html",
		"docs/reports/bench.html", "docs/reports/charts/ManyKeys.svg", "docs/pictures/rods-dark.svg", "docs/pictures/rods-light.svg",
		"service/index.html", "service/docs/proxies.html", "readme.html", "facts.json", "abacus.js", "abacus.css", "search.js", "search.json", "icon.svg"} {
		require.FileExists(t, filepath.Join(to, file))
	}
	guide := try.To(os.ReadFile(filepath.Join(to, "docs/getting-started.html")))(t)
	require.Contains(t, string(guide), `<a href="http.html#from-one-line-to-the-full-form">`)
	require.Contains(t, string(guide), `<h2 id="share-the-counts">`)

	if !long.Asked() { // to build the module and to compress it takes half a minute
		return
	}
	require.FileExists(t, filepath.Join(to, "wasm_exec.js"))
	// What a reader waits for after the first press: no client of a server, no zones, no JSON.
	program := try.To(os.ReadFile(filepath.Join(to, module)))(t)
	var gzipped, brotlied bytes.Buffer
	packer := try.To(gzip.NewWriterLevel(&gzipped, gzip.BestCompression))(t)
	for _, w := range []io.WriteCloser{packer, brotli.NewWriterLevel(&brotlied, brotli.BestCompression)} {
		try.To(w.Write(program))(t)
		require.NoError(t, w.Close())
	}
	t.Logf("%s: %d bytes, gzip %d, brotli %d", module, len(program), gzipped.Len(), brotlied.Len())
	require.LessOrEqual(t, gzipped.Len(), 1_300_000)
	require.LessOrEqual(t, brotlied.Len(), 1_000_000)
}

func TestCheck(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "sub"), 0o755))
	put := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	put("sub/other.html", `<h1 id="there">x</h1>`)
	put("a.svg", "")
	for _, row := range []struct{ page, want string }{
		{`<a href="sub/other.html#there">x</a> <a href="#here" id="here">x</a> <a href="https://example.org/x">x</a> <img src="a.svg">`, ""},
		{`<picture><source srcset="a.svg 1x, a.svg 2x"></picture>`, ""},
		{`<a href="sub/other.html#gone">`, `page.html: link "sub/other.html#gone": sub/other.html has no anchor "gone"`},
		{`<a href="#gone">`, `page.html: link "#gone": page.html has no anchor "gone"`},
		{`<a href="gone.html">`, `page.html: link "gone.html": stat gone.html: no such file or directory`},
		{`<a href="../x.html">`, `page.html: link "../x.html": stat ../x.html: invalid argument`},
		{`<a href="sub">`, `page.html: link "sub": want a file, not a folder`},
		{`<a href="/a.svg">`, `page.html: link "/a.svg": want a relative path`},
		{`<a href="//example.org/a.svg">`, `page.html: link "//example.org/a.svg": want a relative path`},
		{`<a href="a.svg#x">`, `page.html: link "a.svg#x": a.svg is not a page, and has no anchors`},
		{`<img src="gone.svg">`, `page.html: link "gone.svg": stat gone.svg: no such file or directory`},
		{`<source srcset="a.svg, gone.svg 2x">`, `page.html: link "gone.svg": stat gone.svg: no such file or directory`},
		{`<img src="https://example.org/a.svg">`, `page.html: img from https://example.org/a.svg, want a file of the site`},
		{`<p id="a"></p><p id="a"></p>`, `page.html: the anchor "a" is there twice`},
		{`<p style="color:red">`, `page.html: an attribute style="color:red"`},
		{`<p onclick="x()">`, `page.html: an attribute onclick="x()"`},
		{`<script>x()</script>`, `page.html: a script in the page, want a file`},
		{`<style>p{}</style>`, `page.html: a style in the page, want a file`},
	} {
		put("page.html", row.page)
		outside, err := Check(folder)
		if row.want != "" {
			require.EqualError(t, err, row.want, row.page)
			continue
		}
		require.NoError(t, err, row.page)
		if strings.Contains(row.page, "https:") {
			require.Equal(t, []string{"https://example.org/x"}, outside)
		}
	}
	require.ErrorContains(t, try.Err(Check(t.TempDir())), "no page")
}

// The names of headings are those by which the pages link to them on GitHub.
func TestAnchors(t *testing.T) {
	used := anchors{}
	for _, row := range []struct{ title, want string }{
		{"In front of a handler", "in-front-of-a-handler"},
		{"Who is the client?", "who-is-the-client"},
		{"`Take`, and its kin: 2N_x", "take-and-its-kin-2n_x"},
		{"A - B", "a---b"},
		{"Über uns", "über-uns"},
		{"Again", "again"},
		{"Again", "again-1"},
		{"Again", "again-2"},
	} {
		require.Equal(t, row.want, used.of(row.title), row.title)
	}
}

func TestRender(t *testing.T) {
	s := &site{
		root: fstest.MapFS{
			"docs/a.md": {Data: []byte("# A `b`\n\nSee [B](b.md#x), [code](../code/x.go#L3), [the code](../code), [the service](../service),\n" +
				"[there](#more) and <https://example.org/?a=b>.\n\n## More [of](b.md) it\n\n![p](p.svg)\n\n| n |\n|---:|\n| 1 |\n")},
			"docs/b.md":         {Data: []byte("# B\n")},
			"docs/p.svg":        {},
			"code/x.go":         {},
			"service/README.md": {Data: []byte("# S\n")},
		},
		address: "https://example.org/repo", pages: map[string]*page{}, pictures: map[string]bool{"docs/p.svg": true},
	}
	for _, name := range []string{"docs/a.md", "docs/b.md", "service/README.md"} {
		p := try.To(parse(s.root, name))(t)
		s.pages[name] = p
	}
	p := s.pages["docs/a.md"]
	require.Equal(t, "A b", p.Title)
	require.Equal(t, []heading{{"more-of-it", "More of it", 2}}, p.Headings)
	body, sections, err := s.render(p)
	require.NoError(t, err)
	for _, want := range []string{`<h1 id="a-b">`, `href="b.html#x"`, `href="https://example.org/repo/blob/main/code/x.go#L3"`, `href="https://example.org/repo/tree/main/code"`,
		`href="../service/index.html"`, `href="#more"`, `href="https://example.org/?a=b"`, `<h2 id="more-of-it">More <a href="b.html">`, `src="p.svg"`, `<td align="right">`} {
		require.Contains(t, string(body), want)
	}
	require.Equal(t, []section{
		{"docs/a.html", "A b", "", "See B, code, the code, the service, there and https://example.org/?a=b. "},
		{"docs/a.html#more-of-it", "A b", "More of it", "p n 1 "},
	}, sections)

	wrong := try.To(parse(fstest.MapFS{"x.md": {Data: []byte("# X\n\n[y](y.md)\n")}}, "x.md"))(t)
	_, _, err = s.render(wrong)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "link y.md")
	_, err = parse(fstest.MapFS{"x.md": {Data: []byte("text\n")}}, "x.md")
	require.EqualError(t, err, "x.md: the page has no heading")
}

// A page of docs that is in no group is not forgotten.
func TestForgottenPage(t *testing.T) {
	all := fstest.MapFS{"docs/decisions/new.md": {Data: []byte("# A\n")}, "docs/new.md": {Data: []byte("# A\n")}}
	for _, g := range sources {
		for _, pattern := range g.pages {
			all[strings.ReplaceAll(pattern, "*", "x")] = &fstest.MapFile{Data: []byte("# A\n")}
		}
	}
	s := &site{root: all, pages: map[string]*page{}, pictures: map[string]bool{}}
	require.EqualError(t, s.read(), "docs/new.md: the page is in no group of the site")
	delete(all, "docs/new.md")
	s = &site{root: all, pages: map[string]*page{}, pictures: map[string]bool{}}
	require.NoError(t, s.read())
	require.Contains(t, s.pages, "docs/decisions/new.md")
	delete(all, "docs/names.md")
	require.EqualError(t, s.read(), "docs/names.md: no such page")
}
