package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/inspect"
	"github.com/abacus-go/abacus/cmd/demo/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
)

// keys are the flags by which the keys of a program are found in its store.
type keys struct {
	Store   storeName `help:"The store to look into." required:"" env:"ABACUS_STORE" placeholder:"STORE"`
	Limits  limits    `help:"All limits of the rule, such as 10/h,100/d." placeholder:"LIMITS"`
	Ladder  ladder    `help:"The tiers of the program that counts, as width:keep. Default: those of a limiter's rule with these limits; without limits those of counter.Config." placeholder:"TIERS"`
	Program program   `embed:""`
	AsIs    bool      `help:"Take features as they are given, as a program without a limiter does."`
	Timeout span      `help:"How long a call of the store may take. Default: ${default}." default:"10s" placeholder:"DURATION"`
}

// program is the flags for the configuration of a program's counter and limiter, as
// far as the keys in the store depend on them.
type program struct {
	Prefix    string `help:"Its counter.Config.Prefix. Default: ${default}." default:"ab" placeholder:"PREFIX"`
	SecretEnv string `help:"The environment variable that holds its counter.Config.Secret." placeholder:"VARIABLE"`
	Skew      span   `help:"Its counter.Config.Skew, part of the stored key on memcached. Default: ${default}." default:"${skew}" placeholder:"DURATION"`
	Settle    span   `help:"Its counter.Config.Settle, likewise. Default: ${default}." default:"${settle}" placeholder:"DURATION"`
	IPv4Bits  int    `name:"ipv4-bits" help:"Its limiter.Config.IPv4Bits. Default: ${default}." default:"32" placeholder:"BITS"`
	IPv6Bits  int    `name:"ipv6-bits" help:"Its limiter.Config.IPv6Bits. Default: ${default}." default:"64" placeholder:"BITS"`
	NoDots    bool   `name:"email-ignore-dots" help:"Its limiter.Config.EmailIgnoreDots."`
	NoTags    bool   `name:"email-ignore-tags" help:"Its limiter.Config.EmailIgnoreTags."`
	Gmail     bool   `help:"Its limiter.Config.EmailProviders has limiter.Gmail."`
}

// keysHelp is the part of --help about keys.
const keysHelp = `A feature is a kind, a colon and a value. Values of ip, email and domain are brought to the form by which a limiter counts: Ada@Example.org is ada@example.org, and an IPv6 address is its network. Several features joined are ip+email:203.0.113.9,ada@example.org, with %2C for a comma and %25 for a percent sign in a value; a network of another kind is net:203.0.113.0/24. Ladder, prefix and secret, and on memcached skew and settle, are part of the stored key: with another one nothing is found.`

// otherKey tells why nothing may be found.
const otherKey = `Ladder, prefix and secret, and on memcached skew and settle,
must be those of the program that counts: they are part of the stored key.
`

// open opens the store, which answers, and makes the counter of the program.
func (k *keys) open(ctx context.Context, now func() time.Time) (*stores.Opened, *counter.Counter, error) {
	cfg, err := k.config(now)
	if err != nil {
		return nil, nil, usageError{err}
	}
	store, err := openStore(k.Store, time.Duration(k.Timeout))
	if err != nil {
		return nil, nil, err
	}
	count, err := counter.New(store.Store, cfg)
	if err != nil {
		err = usageError{err}
	} else {
		err = identify(ctx, store)
	}
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return store, count, nil
}

func (k *keys) config(now func() time.Time) (counter.Config, error) {
	cfg, err := k.Program.counter()
	if err != nil {
		return cfg, err
	}
	cfg.Ladder, cfg.Now = k.Ladder.orFor(counter.Limits(k.Limits).Windows()...), now
	if k.Store.Kind == stores.InMemory {
		return cfg, errors.New("--store memory: such a store belongs to its process and has nothing here, want a Redis or a memcached")
	}
	return cfg, k.Timeout.check("--timeout", 0)
}

// counter is the counter.Config of the program, without ladder and clock.
func (p *program) counter() (counter.Config, error) {
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
	cfg := limiter.Config{IPv4Bits: p.IPv4Bits, IPv6Bits: p.IPv6Bits, EmailIgnoreDots: p.NoDots, EmailIgnoreTags: p.NoTags}
	if p.Gmail {
		cfg.EmailProviders = []limiter.EmailProvider{limiter.Gmail()}
	}
	return cfg
}

// key returns the key under which a limiter on c counts a feature. An error is a
// usageError.
func (k *keys) key(c *counter.Counter, event, feature string) (counter.Key, error) {
	key := counter.Key{Event: event, Feature: feature}
	kind, value, _ := strings.Cut(feature, ":")
	if k.AsIs || value == "" {
		return key, nil
	}
	f := inspect.Feature(kind, value, k.Program.IPv4Bits, k.Program.IPv6Bits)
	if f.Err() != nil {
		return key, usageError{fmt.Errorf("%w, in %q, or --as-is", f.Err(), feature)}
	}
	l := c.Ladder()
	cfg := k.Program.limiter()
	cfg.Rules = []limiter.Rule{{Event: event, Kind: kind, Limits: counter.Limits{{Max: 1, Per: l.At(l.Len() - 1).Keep}}}}
	lim, err := limiter.New(c, cfg)
	if err == nil {
		key, err = lim.Key(event, f)
	}
	if err != nil {
		return key, usageError{fmt.Errorf("%w, or --as-is", err)}
	}
	return key, nil
}
