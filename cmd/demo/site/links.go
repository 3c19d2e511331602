package site

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// document is the contents of a page that Check needs.
type document struct {
	ids   map[string]bool
	links []string
}

// Check looks at all pages in a folder. The error names each link to a file or an
// anchor that is not there, each link that would lead elsewhere if the folder were
// served at another path, and whatever the Policy forbids. Check returns the
// addresses elsewhere, sorted.
func Check(folder string) (outside []string, err error) {
	root := os.DirFS(folder)
	pages := map[string]*document{}
	var wrong []error
	err = fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".html" {
			return err
		}
		page, faults, err := look(root, name)
		pages[name] = page
		wrong = append(wrong, faults...)
		return err
	})
	if err != nil {
		return nil, err
	}
	elsewhere := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, link := range pages[name].links {
			to, err := url.Parse(link)
			switch {
			case err != nil:
				wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
			case to.Scheme != "":
				elsewhere[link] = true
			default:
				if err := follow(root, pages, name, to); err != nil {
					wrong = append(wrong, fmt.Errorf("%s: link %q: %w", name, link, err))
				}
			}
		}
	}
	if len(pages) == 0 {
		wrong = append(wrong, fmt.Errorf("%s: no page", folder))
	}
	return slices.Sorted(maps.Keys(elsewhere)), errors.Join(wrong...)
}

// follow follows a link within the folder.
func follow(root fs.FS, pages map[string]*document, from string, to *url.URL) error {
	if to.Host != "" || strings.HasPrefix(to.Path, "/") {
		return errors.New("want a relative path")
	}
	target := from
	if to.Path != "" {
		target = path.Join(path.Dir(from), to.Path)
	}
	found, err := fs.Stat(root, target)
	switch {
	case err != nil:
		return err
	case found.IsDir():
		return errors.New("want a file, not a folder")
	case to.Fragment == "":
		return nil
	case pages[target] == nil:
		return fmt.Errorf("%s is not a page, and has no anchors", target)
	case !pages[target].ids[to.Fragment]:
		return fmt.Errorf("%s has no anchor %q", target, to.Fragment)
	}
	return nil
}

// look reads a page, and returns a fault for all in it that the Policy forbids.
func look(root fs.FS, name string) (page *document, faults []error, err error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	tree, err := html.Parse(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	page = &document{ids: map[string]bool{}}
	for n := range tree.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if (n.Data == "script" || n.Data == "style") && n.FirstChild != nil {
			faults = append(faults, fmt.Errorf("%s: a %s in the page, want a file", name, n.Data))
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "id":
				if page.ids[a.Val] {
					faults = append(faults, fmt.Errorf("%s: the anchor %q is there twice", name, a.Val))
				}
				page.ids[a.Val] = true
			case a.Key == "href" || a.Key == "src":
				page.links = append(page.links, a.Val)
				if to, err := url.Parse(a.Val); n.Data != "a" && err == nil && to.Scheme != "" {
					faults = append(faults, fmt.Errorf("%s: %s from %s, want a file of the site", name, n.Data, a.Val))
				}
			case a.Key == "srcset":
				for candidate := range strings.SplitSeq(a.Val, ",") {
					page.links = append(page.links, strings.Fields(candidate)[0])
				}
			case a.Key == "style" || strings.HasPrefix(a.Key, "on"):
				faults = append(faults, fmt.Errorf("%s: an attribute %s=%q", name, a.Key, a.Val))
			}
		}
	}
	return page, faults, nil
}
