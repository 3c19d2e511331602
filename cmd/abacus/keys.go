package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/cmd/internal/cli"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/cmd/internal/text"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
)

// keys are the flags by which the keys of a program are found in its store.
type keys struct {
	Store   cli.Store  `help:"The store to look into." required:"" env:"ABACUS_STORE" placeholder:"STORE"`
	Ladder  cli.Ladder `help:"The counter.Config.Ladder of the program that counts, as width:keep. Default: those of each rule or of --limits; without both that of counter.Config." placeholder:"TIERS"`
	Program program    `embed:""`
	Timeout cli.Span   `help:"How long a call of the store may take. Default: ${default}." default:"10s" placeholder:"DURATION"`
}

// program is the flags for the configuration of a program's counter and limiter, as
// far as the keys in the store depend on them.
type program struct {
	counts
	IPv4Bits int  `name:"ipv4-bits" help:"Its feature.Forms.IPv4Bits. Default: ${default}." default:"32" placeholder:"BITS"`
	IPv6Bits int  `name:"ipv6-bits" help:"Its feature.Forms.IPv6Bits. Default: ${default}." default:"64" placeholder:"BITS"`
	NoDots   bool `name:"email-ignore-dots" help:"Its feature.Forms.EmailIgnoreDots."`
	NoTags   bool `name:"email-ignore-tags" help:"Its feature.Forms.EmailIgnoreTags."`
	Gmail    bool `help:"Its feature.Forms.EmailProviders has Gmail."`
}

// counts is the flags for the configuration of a program's counter alone.
type counts struct {
	Prefix    string   `help:"Its counter.Config.Prefix. Default: ${default}." default:"ab" placeholder:"PREFIX"`
	SecretEnv string   `help:"The environment variable that holds its counter.Config.Secret." placeholder:"VARIABLE"`
	Skew      cli.Span `help:"Its counter.Config.Skew, part of the stored key on memcached. Default: ${default}." default:"${skew}" placeholder:"DURATION"`
	Settle    cli.Span `help:"Its counter.Config.Settle, likewise. Default: ${default}." default:"${settle}" placeholder:"DURATION"`
}

// terms are the flags of the limits by which a program counts.
type terms struct {
	Rules  string     `help:"The file of the rules by which the program's limiter counts." xor:"terms" placeholder:"FILE"`
	Limits cli.Limits `help:"Without a limiter: all limits of the key, such as 10/h,100/d." xor:"terms" placeholder:"LIMITS"`
}

// featuresHelp is the part of --help about features and rules.
const featuresHelp = `A feature is a kind, a colon and a value. By --rules the command knows limits, plans, else, ladders, bans and overrides, and finds a feature as the limiter counts it: Ada@Example.org as ada@example.org, an IPv6 address as its network. Several features joined are ip+email:203.0.113.9,ada@example.org, with %2C for a comma and %25 for a percent sign in a value; a network of another kind is net:203.0.113.0/24.`

// nothingHelp is the part of --help about features that count nothing.
const nothingHelp = `Exit code 3: a feature counts nothing. It has no hits, as after a forget; or rules, ladder, prefix or secret, or on memcached skew or settle, all parts of the stored key, are not those of the program.`

// keysHelp is the part of --help about keys.
const keysHelp = featuresHelp + `

Without --rules a feature is any text, as a program without a limiter gives it to a counter.Counter. ` + nothingHelp

// errMemory is of a store that no other process can look into.
var errMemory = cli.Usagef("--store memory: such a store belongs to its process and has nothing here, want a Redis or a memcached")

// found returns an error with the names of features that count nothing, if
// there are any.
func found(names []string) error {
	if len(names) == 0 {
		return nil
	}
	return cli.Nothingf("nothing is counted for %s: no hits are left, as after a forget; or rules, ladder, prefix or secret, or on memcached skew or settle, are not those of the program", strings.Join(names, ", "))
}

// opened is a program's store, counter and limiter.
type opened struct {
	*stores.Opened
	count *counter.Counter
	lim   *limiter.Limiter // nil without --rules
	set   *rules.Set
}

// open opens the store, which answers, and makes the counter of the program, and its
// limiter.
func (k *keys) open(ctx context.Context, t terms, now func() time.Time) (*opened, error) {
	o := &opened{}
	by := k.Program.limiter()
	if t.Rules != "" {
		var err error
		if o.set, err = rules.Load(t.Rules); err != nil {
			return nil, err
		}
		by.Rules = slices.Clone(o.set.Rules)
	}
	cfg, err := k.Program.counter()
	if err == nil && k.Store.Kind == stores.InMemory {
		err = errMemory
	}
	if err = cmp.Or(err, k.Timeout.Check("--timeout", 0)); err != nil {
		return nil, cli.Usage(err)
	}
	if cfg.Ladder, cfg.Now = k.Ladder.Ladder, now; t.Rules == "" {
		cfg.Ladder = k.Ladder.OrFor(t.Limits...)
	}
	if o.Opened, err = k.Store.Open(k.Timeout); err != nil {
		return nil, err
	}
	if o.count, err = counter.New(o.Store, cfg); err == nil && t.Rules != "" {
		for i := range by.Rules {
			by.Rules[i].OnFailure = limiter.FailClosed // nothing is decided, and FailLocal would need a counter
		}
		o.lim, err = limiter.New(o.count, by)
	}
	if err != nil {
		err = cli.Usage(err)
	} else {
		err = cli.Identify(ctx, o.Opened)
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// counter is the counter.Config of the program, without ladder and clock.
func (p *counts) counter() (counter.Config, error) {
	cfg := counter.Config{
		Prefix: p.Prefix, Skew: cmp.Or(time.Duration(p.Skew), -1), Settle: cmp.Or(time.Duration(p.Settle), -1),
		Patience: -1, // nobody waits for a verdict: the store's own timeout holds
	}
	if p.SecretEnv != "" {
		if cfg.Secret = []byte(os.Getenv(p.SecretEnv)); len(cfg.Secret) == 0 {
			return cfg, fmt.Errorf("--secret-env %s: the environment variable is empty or not set, want the secret in it", p.SecretEnv)
		}
	}
	return cfg, nil
}

// limiter is the limiter.Config of the program, without rules.
func (p *program) limiter() limiter.Config {
	cfg := limiter.Config{Forms: feature.Forms{IPv4Bits: p.IPv4Bits, IPv6Bits: p.IPv6Bits, EmailIgnoreDots: p.NoDots, EmailIgnoreTags: p.NoTags}}
	if p.Gmail {
		cfg.Forms.EmailProviders = []feature.EmailProvider{feature.Gmail()}
	}
	return cfg
}

// feature reads a feature for the limiter of the program.
func (p *program) feature(given string) (feature.Feature, error) {
	kind, value, _ := strings.Cut(given, ":")
	f := text.Feature(kind, value, p.IPv4Bits, p.IPv6Bits)
	switch {
	case f.Err() != nil:
		return f, cli.Usagef("%w, in %q", f.Err(), given)
	case f.Missing():
		return f, cli.Usagef("feature %q: want a kind, a colon and a value, such as email:ada@example.org", given)
	}
	return f, nil
}

// notStore makes an error a mistake in the call, unless the store has failed.
func notStore(err error) error {
	if err == nil || errors.Is(err, counter.ErrStore) {
		return err
	}
	return cli.Usage(err)
}

// by reports whether a rule counts features of a kind.
func by(r limiter.Rule, kind string) bool { return r.Kind == kind || r.Else == kind }
