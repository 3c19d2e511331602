package envoy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// ruleset is the rules of all files. Nothing in it but calls changes.
type ruleset struct {
	calls         atomic.Int64 // under way
	domains       map[string]*node
	keys          map[string]bool // of all descriptors
	text          strings.Builder // for people
	rules         []limiter.Rule
	shadow, quota bool // all rules are
}

// maxBytes bounds what is read, of all files together. A pipe has no end, and is not read.
const maxBytes = 8 << 20

// content is the content of a file.
type content struct {
	name string
	data []byte
}

// read reads the file at path, or the files of the folder at path and of the folders in it,
// by name. Names that begin with a dot are left out, such as the folders behind the symbolic
// links of a mounted config map.
func read(path string) (files []content, err error) {
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	size := int64(0)
	err = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case at != root && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		}
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if size += info.Size(); size > maxBytes || !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no file, or is more than is read of all: %d bytes", at, maxBytes)
		}
		data, err := os.ReadFile(at)
		files = append(files, content{at, data})
		return err
	})
	if err == nil && len(files) == 0 { // such as a config map that is not mounted any more
		err = fmt.Errorf("%s has no files, want files of rules", path)
	}
	return files, err
}

// sum is the digest of files.
func sum(files []content) (s [sha256.Size]byte) {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d:%s%d:%s", len(f.name), f.name, len(f.data), f.data)
	}
	return [sha256.Size]byte(h.Sum(s[:0]))
}

// compile makes a ruleset of files. The error joins all faults of all files.
func compile(files []content, cfg *Config) (*ruleset, error) {
	set := &ruleset{domains: map[string]*node{}, keys: map[string]bool{}, shadow: cfg.Settings.Shadow, quota: cfg.Settings.Quota && !cfg.Settings.Shadow}
	var errs []error
	for _, c := range files {
		f, err := parse(c.name, c.data)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		root := set.domains[f.Domain.string]
		switch {
		case root == nil:
			root = &node{}
			set.domains[f.Domain.string] = root
		case !cfg.Settings.MergeDomains:
			errs = append(errs, fmt.Errorf("%s:%d: the domain %q is in another file already, want each in one, or MergeDomains", c.name, f.Domain.line, f.Domain.string))
			continue
		}
		errs = append(errs, root.add(c.name, "", 1, f.Descriptors))
	}
	for _, domain := range slices.Sorted(maps.Keys(set.domains)) {
		set.addBelow(domain, domain, set.domains[domain], cfg.OnFailure)
		for _, per := range slices.Sorted(maps.Values(units)) {
			limits := counter.Limits{{Per: per}} // each call brings its own
			set.add(domain, &rule{kind: kindOf(wildcard, limits), limits: limits, shadow: set.shadow}, cfg.OnFailure)
		}
	}
	return set, errors.Join(errs...)
}

// addBelow adds the rules at n and below, in an order that depends on them alone. The path
// is the name of n for people, as the reference writes it.
func (set *ruleset) addBelow(domain, path string, n *node, onFailure limiter.OnFailure) {
	if r := n.rule; r != nil {
		limits := "unlimited"
		if !r.unlimited() {
			limits, r.shadow = r.limits.String(), r.shadow || set.shadow
			r.quota = !r.shadow && (r.quota || set.quota)
			set.add(domain, r, onFailure)
		}
		fmt.Fprintf(&set.text, "%q: %s, shadow_mode: %t, quota_mode: %t\n", path, limits, r.shadow, r.quota)
	}
	for _, key := range slices.Sorted(maps.Keys(n.fallback)) {
		set.keys[key] = true
		set.addBelow(domain, path+"."+key, n.fallback[key], onFailure)
	}
	exact := slices.SortedFunc(maps.Keys(n.exact), func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.value, b.value))
	})
	for _, e := range exact {
		set.keys[e.key] = true
		set.addBelow(domain, path+"."+nameOf(e.key, e.value), n.exact[e], onFailure)
	}
}

// add adds the rules of the limiter for a rule of a domain. A rule in shadow_mode is two: all
// hits are charged to one, so that no count is lost when the rule denies, or costs are told.
// The other is soft, and counts what the rule would admit, so that the rule reports as many
// denials as there will be.
func (set *ruleset) add(domain string, r *rule, onFailure limiter.OnFailure) {
	l := limiter.Rule{Event: domain, Kind: r.kind, Limits: r.limits, IfMissing: limiter.MissingSkip, OnFailure: onFailure}
	if r.shadow {
		l.OnFailure = limiter.FailOpen
	}
	set.rules = append(set.rules, l)
	if r.shadow {
		l.Soft = true
		set.rules = append(set.rules, l)
	}
}

// with returns the rules of set and those of former sets, the latest first, whose kinds are
// in none before. So a call that has begun with former rules meets them, though it asks
// after a change.
func (set *ruleset) with(former []*ruleset) (rules []limiter.Rule) {
	has := make(map[[2]string]bool, len(set.rules))
	for _, of := range append([]*ruleset{set}, former...) {
		added := len(rules)
		for i := range of.rules {
			if r := &of.rules[i]; !has[[2]string{r.Event, r.Kind}] {
				rules = append(rules, *r)
			}
		}
		for i := range rules[added:] {
			has[[2]string{rules[added+i].Event, rules[added+i].Kind}] = true
		}
	}
	return rules
}

// apply applies the rules of files, whole or not at all.
func (s *Service) apply(files []content) error {
	set, err := compile(files, &s.cfg)
	if err != nil {
		return err
	}
	former := slices.DeleteFunc(slices.Clone(s.former), func(old *ruleset) bool { return old.calls.Load() == 0 })
	if before := s.rules.Load(); before != nil {
		former = slices.Insert(former, 0, before)
	}
	cfg, lim := s.cfg.Limiter, s.limiter.Load()
	if cfg.Rules = set.with(former); lim != nil {
		err = lim.ReplaceAll(cfg.Rules...)
	} else if lim, err = limiter.New(s.cfg.Counter, cfg); err == nil {
		s.limiter.Store(lim)
		if s.cfg.Opened != nil {
			s.cfg.Opened(lim)
		}
	}
	if err == nil {
		s.applied, s.former = sum(files), former
		s.rules.Store(set)
		s.good.Add(1)
		s.healthy()
	}
	return err
}

// noted counts a load, and logs each change between good and bad.
func (s *Service) noted(err error) {
	if lim := s.limiter.Load(); lim != nil {
		lim.RulesRead(err)
	}
	log := cmp.Or(s.cfg.Limiter.Logger, slog.Default())
	switch {
	case err != nil:
		s.bad.Add(1)
		if !s.refused {
			log.Warn("envoy: the rules are refused, the rules until now stay", "rules", s.cfg.Rules, "error", err)
		}
	case s.refused:
		log.Info("envoy: the rules in force are those of the files again", "rules", s.cfg.Rules)
	}
	s.refused = err != nil
}

// watch reads the files until Close. A change is believed once two reads in a row have
// found it, a fifth of Every apart: a file may be half written, or a folder half replaced.
func (s *Service) watch() {
	timer := time.NewTimer(s.cfg.Every)
	defer timer.Stop()
	var seen []byte // digest of the last read, to be believed by one more; nil: none
	for {
		select {
		case <-s.stop:
			return
		case <-timer.C:
		}
		next := s.cfg.Every
		files, err := read(s.cfg.Rules)
		now := sum(files)
		switch {
		case err != nil:
			seen = nil
			s.noted(err)
		case now == s.applied && s.rules.Load() != nil:
			seen = nil
			s.noted(nil)
		case !bytes.Equal(seen, now[:]):
			seen, next = now[:], s.cfg.Every/5
		default:
			seen = nil
			s.noted(s.apply(files))
		}
		timer.Reset(next)
	}
}
