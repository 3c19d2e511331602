package limiter

import (
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/inside"
	"github.com/abacus-go/abacus/limiter/fallback"
	"github.com/abacus-go/abacus/tiers"
)

// ladders makes one Counter for each ladder.
type ladders struct {
	counter *counter.Counter
	more    map[laddered]*counter.Counter // with other ladders
}

type laddered struct {
	ladder string
	former former
}

func newLadders(c *counter.Counter) ladders {
	return ladders{c, map[laddered]*counter.Counter{}}
}

// on returns a Counter on the ladder.
func (l *ladders) on(ladder tiers.Ladder, former *counter.Config) (*counter.Counter, error) {
	if former == nil && ladder.Equal(l.counter.Config().Ladder) {
		return l.counter, nil
	}
	key := laddered{ladder.String(), formerOf(former)}
	if c := l.more[key]; c != nil {
		return c, nil
	}
	c, err := l.counter.With(ladder, former)
	if err == nil {
		l.more[key] = c
	}
	return c, err
}

// former is a Rule.Former in a form that can be compared; zero for nil.
type former struct {
	given, secret       bool
	ladder, prefix, key string
	skew, settle        time.Duration
}

func formerOf(c *counter.Config) former {
	if c == nil {
		return former{}
	}
	return former{true, c.Secret != nil, c.Ladder.String(), c.Prefix, string(c.Secret), c.Skew, c.Settle}
}

// equalFormer reports whether two former ladders are the same.
func equalFormer(a, b *counter.Config) bool { return formerOf(a) == formerOf(b) }

// terms are the limits of a call, prepared for a rule.
type terms struct {
	limits counter.Limits
	local  *fallback.Rule // nil: never counted locally
}

// inner returns what a Limiter needs of a Counter and users do not.
func inner(c *counter.Counter) inside.Counter[counter.Key, counter.Ask, counter.Verdict] {
	return inside.Of(c).(inside.Counter[counter.Key, counter.Ask, counter.Verdict])
}
