package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/words"
	"github.com/abacus-go/abacus/limiter"
)

type rulesTestCmd struct {
	Rules string    `help:"The rules to try." required:"" placeholder:"NEW"`
	Now   string    `help:"The rules by which the program counts now, by default those of --rules: without them a looser rule is not found out." placeholder:"OLD"`
	Store cli.Store `help:"The store to look into." required:"" env:"ABACUS_STORE" placeholder:"STORE"`
	Keys  string    `help:"A file of the keys to try, lines of event,feature. Default on Redis without --secret-env: all that the store has." placeholder:"KEYS.csv"`
	counts
	Timeout cli.Span `help:"How long a call of the store may take. Default: ${default}." default:"10s" placeholder:"DURATION"`
	JSON    bool     `help:"Print one JSON object."`
}

// Help is the part of --help that follows the summary.
func (*rulesTestCmd) Help() string {
	return `The store has the admitted hits of each key, in buckets. A rule that admits nothing that was denied until now is tried on them: the number is that of the denials, had the rule been enforced alone, to the finest buckets that are kept as long as the longest window. Hits that were denied are not in the store, so nothing can be told of a looser rule: count by a soft rule beside.

Each rule is tried by itself. Limits of plans are not known to the store, and not tried. It writes nothing.

` + cli.StoreHelp + `

Examples:

    abacus rules test --rules new.yaml --now rules.yaml \
        --store redis://127.0.0.1:6379/0
    abacus rules test --rules new.yaml --now rules.yaml --keys keys.csv \
        --store memcached://127.0.0.1:11211`
}

// tried is the result for a rule.
type tried struct {
	Rule    string    `json:"rule"`
	Limits  string    `json:"limits"`
	Refused string    `json:"refused,omitempty"`
	Keys    int64     `json:"keys"` // with hits
	Hits    int64     `json:"hits"`
	Denied  int64     `json:"denied"`
	Of      int64     `json:"keys_denied"`
	Most    []mostHit `json:"most_denied"` // at most five

	rule    limiter.Rule
	counter *counter.Counter
}

type mostHit struct {
	Feature string `json:"feature"`
	Hits    int64  `json:"hits"`
	Denied  int64  `json:"denied"`
}

// Run prints for each rule what it would have denied.
func (c *rulesTestCmd) Run(e *cli.Env) error {
	var now []limiter.Rule
	all, err := cli.Rules(c.Rules)
	if err == nil && c.Now != "" {
		now, err = cli.Rules(c.Now)
	}
	if err != nil {
		return err
	}
	looked := time.Now()
	k := keys{Store: c.Store, Program: program{counts: c.counts}, Timeout: c.Timeout}
	store, err := k.open(e.Ctx, terms{}, func() time.Time { return looked })
	if err != nil {
		return err
	}
	defer store.Close()
	results, err := c.prepare(all, now, store.count)
	if err != nil {
		return err
	}
	found, nameless, err := c.list(e.Ctx, store.Opened)
	if err != nil {
		return err
	}
	if err := tryAll(e, results, found); err != nil {
		return err
	}
	err = e.Print(c.JSON, "test", struct {
		Store    string   `json:"store"`
		Rules    []*tried `json:"rules"`
		Nameless int64    `json:"keys_without_name"`
		Now      string   `json:"-"`
	}{c.Store.String(), results, nameless, c.Now})
	if err != nil {
		return err
	}
	refused := int64(0)
	for _, r := range results {
		if r.Refused != "" {
			refused++
		}
	}
	if refused > 0 {
		return fmt.Errorf("%s of %d cannot be told from counters", words.Plural(refused, "rule"), len(results))
	}
	return nil
}

// tryAll tries all rules on all keys.
func tryAll(e *cli.Env, results []*tried, found []counter.Key) error {
	bar := e.Progress()
	bar.Show("rules test", int64(len(found)), false)
	defer bar.Clear()
	for i, key := range found {
		bar.Set(int64(i))
		for _, r := range results {
			if r.Refused == "" && r.rule.Event == key.Event && r.rule.Kind == feature.KindOf(key.Feature) {
				if err := r.try(e.Ctx, key); err != nil {
					return fmt.Errorf("%s: %w", text.Key(key.Event, key.Feature, cli.Columns), err)
				}
			}
		}
	}
	return nil
}

// prepare finds the ladder by which each rule is counted now, and refuses rules that
// counters cannot tell of.
func (c *rulesTestCmd) prepare(all, now []limiter.Rule, count *counter.Counter) ([]*tried, error) {
	var results []*tried
	for _, rule := range all {
		r := &tried{Rule: rule.String(), Limits: rule.Limits.String(), Most: []mostHit{}, rule: rule}
		ladder := rule.Ladder
		if c.Now != "" {
			i := slices.IndexFunc(now, func(old limiter.Rule) bool {
				return old.Event == rule.Event && old.Kind == rule.Kind && !old.Soft
			})
			if i < 0 {
				r.Refused = "no rule has counted until now"
			} else {
				ladder, r.Refused = now[i].Ladder, looserRule(now[i], rule)
			}
		}
		var err error
		if r.counter, err = count.With(ladder, nil); err != nil {
			return nil, cli.Usage(err)
		}
		results = append(results, r)
	}
	return results, nil
}

// list returns the keys to try, and the number of keys in the store whose names hide
// the feature.
func (c *rulesTestCmd) list(ctx context.Context, store *stores.Opened) (found []counter.Key, nameless int64, err error) {
	seen := map[counter.Key]bool{}
	switch {
	case c.Keys != "":
		file, err := os.Open(c.Keys)
		if err != nil {
			return nil, 0, err
		}
		defer file.Close()
		in := csv.NewReader(file)
		in.FieldsPerRecord = 2
		records, err := in.ReadAll()
		if err != nil {
			return nil, 0, fmt.Errorf("--keys %s: %w, want lines of event,feature", c.Keys, err)
		}
		for _, r := range records {
			seen[counter.Key{Event: r[0], Feature: r[1]}] = true
		}
	case store.Redis == nil:
		return nil, 0, cli.Usagef("--store: memcached lists no keys, want them by --keys")
	default:
		digests := map[string]bool{}
		err := store.Redis.Scan(ctx, stores.KeysOf(c.Prefix+":"), func(_ *goredis.Client, names []string) error {
			for _, name := range names {
				if key, ok := keyOf(name); ok {
					seen[key] = true
				} else if group, _, ok := strings.Cut(name, "}"); ok && strings.ContainsAny(group, "#$") {
					digests[group] = true
				}
			}
			return nil
		})
		if err != nil {
			return nil, 0, fmt.Errorf("store %s: %w", c.Store, err)
		}
		nameless = int64(len(digests))
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b counter.Key) int {
		return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Feature, b.Feature))
	}), nameless, nil
}

// keyOf returns the key in the name of a Redis key: {ab:1LLLL:event:feature} and the
// name of a bucket or a leaf. See docs/storage.md.
func keyOf(name string) (counter.Key, bool) {
	group, _, ok := strings.Cut(strings.TrimPrefix(name, "{"), "}")
	parts := strings.SplitN(group, ":", 4)
	if !ok || len(parts) < 4 || len(parts[1]) != 5 {
		return counter.Key{}, false
	}
	event, err := url.PathUnescape(parts[2])
	feature, wrong := url.PathUnescape(parts[3])
	return counter.Key{Event: event, Feature: feature}, err == nil && wrong == nil && event != "" && feature != ""
}

// try adds the hits of a key.
func (r *tried) try(ctx context.Context, key counter.Key) error {
	hits, err := historyOf(ctx, r.counter, key)
	if err != nil || len(hits) == 0 {
		return err
	}
	feature, err := text.FeatureOf(key)
	if err != nil {
		return err
	}
	denied, err := deniedOf(ctx, r.rule, feature, hits)
	if err != nil {
		return err
	}
	m := mostHit{Feature: key.Feature, Denied: denied}
	for _, p := range hits {
		m.Hits += p.Count
	}
	r.Keys++
	r.Hits += m.Hits
	r.Denied += denied
	if denied > 0 {
		r.Of++
		r.Most = append(r.Most, m)
		slices.SortStableFunc(r.Most, func(a, b mostHit) int { return cmp.Compare(b.Denied, a.Denied) })
		r.Most = r.Most[:min(len(r.Most), 5)]
	}
	return nil
}
