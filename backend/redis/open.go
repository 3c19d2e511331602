package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Open makes a Store and a client, and [Store.Close] closes both. Forms of the
// URL:
//
//	redis://user:password@host:6379/0
//	redis://host:6379?addr=host2:6379&addr=host3:6379      a Cluster, by some of its nodes
//	redis://host:26379/0?master_name=mymaster              a master by its Sentinels; addr names more of them
//
// with rediss for TLS, or unix:// and the path of a socket. The parameter layout is
// sums or plain, as Config.Layout, and must not contradict it. Other parameters are
// go-redis's own, such as pool_size and protocol.
//
// Open does not connect: an error is about the URL or the Config. [Store.Check], or
// the Check of a Counter or limiter, reports whether the server can be counted on.
//
// The client, go-redis, writes lines of its own to standard error, for a dial that fails
// for example ("redis: ... pool.go: ... failed to dial"). [redis.SetLogger] sends the
// lines elsewhere, for the whole process, and Disable of the package
// github.com/redis/go-redis/v9/logging turns the lines off.
func Open(rawURL string, cfg Config) (Store, error) {
	if cfg.Dialer != nil {
		return nil, errors.New("redis: Open makes a Dialer of its own, and was given one")
	}
	u, layout, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	switch layout {
	case "", cfg.Layout.String():
	case Plain.String():
		cfg.Layout = Plain
	case Sums.String():
		return nil, fmt.Errorf("redis: the URL has layout=sums, and Config.Layout is %s", cfg.Layout)
	default:
		return nil, fmt.Errorf("redis: the URL has layout=%s, want layout=sums or layout=plain", layout)
	}
	client, dialer, err := connect(u)
	if err != nil {
		return nil, err
	}
	cfg.Dialer = dialer
	s, err := newStore(client, cfg)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.owned = true
	return s.layout, nil
}

// parseURL returns the URL without the parameter layout, and the word of the layout,
// or an error without a password.
func parseURL(rawURL string) (u *url.URL, layout string, err error) {
	const want = "want redis://host:port/db (or rediss://, unix://)"
	scheme, rest, isURL := strings.Cut(rawURL, "://")
	// A password with a slash ends the host, and would be taken for the rest.
	if i := strings.IndexAny(rest, "/?#"); isURL && i >= 0 && strings.Contains(rest[i:], "@") {
		return nil, "", errors.New("redis: a URL with an @ behind its host: in a password / ? # @ are written %2F %3F %23 %40")
	}
	known := isURL && slices.Contains([]string{"redis", "rediss", "unix"}, scheme)
	switch u, err = url.Parse(rawURL); {
	case known && err == nil:
	case !strings.Contains(rawURL, "@"):
		return nil, "", fmt.Errorf("redis: %q: %s", rawURL, want)
	case isURL && !known:
		return nil, "", fmt.Errorf("redis: a URL that begins with %q: %s", scheme+"://", want)
	default:
		return nil, "", errors.New("redis: a URL that cannot be parsed, " + want)
	}
	port, bad := strconv.ParseUint(cmp.Or(u.Port(), "6379"), 10, 16)
	switch colons := strings.Contains(u.Hostname(), ":"); {
	case u.Fragment != "":
		err = fmt.Errorf("redis: a URL with a # and %q behind it, %s", u.Fragment, want)
	case scheme == "unix" && u.Host != "":
		err = fmt.Errorf("redis: a socket with a host, %q, want unix:///path, with three slashes", u.Host)
	case scheme == "unix":
	case u.Host == "":
		err = errors.New("redis: a URL without a host, " + want)
	case strings.Contains(u.Host, ","):
		err = fmt.Errorf("redis: %q: want one host; of a Cluster the others are ?addr=host:port&addr=host:port", u.Host)
	case colons && u.Host[0] != '[':
		err = fmt.Errorf("redis: %q has several colons: want host:port, then /db; an IPv6 address is in brackets", u.Host)
	case bad != nil || port == 0:
		err = fmt.Errorf("redis: %q: port %q, want 1 to 65535", u.Host, u.Port())
	case strings.HasPrefix(u.Path, "/-"):
		err = fmt.Errorf("redis: database %q, want 0 or more", u.Path[1:])
	}
	q := u.Query()
	layout = q.Get("layout")
	q.Del("layout")
	u.RawQuery = q.Encode()
	return u, layout, err
}

// connect makes a client that keeps deadlines, dials with a Dialer, and returns the
// error of the first dial that fails: five tries, the default, take longer
// than most calls have.
func connect(u *url.URL) (_ redis.UniversalClient, _ *Dialer, err error) {
	rawURL, q := u.String(), u.Query()
	var d *Dialer
	dialing := func(config *tls.Config, dial *func(context.Context, string, string) (net.Conn, error), deadlines *bool, tries *int) {
		d = NewDialer(dialWith(config))
		*dial, *deadlines, *tries = d.DialContext, true, 1
	}
	var client redis.UniversalClient
	switch {
	case q.Get("master_name") != "":
		var o *redis.FailoverOptions
		if o, err = redis.ParseFailoverURL(rawURL); err == nil {
			dialing(o.TLSConfig, &o.Dialer, &o.ContextTimeoutEnabled, &o.DialerRetries)
			client = redis.NewFailoverClient(o)
		}
	case q.Has("addr"):
		var o *redis.ClusterOptions
		if o, err = redis.ParseClusterURL(rawURL); err == nil {
			dialing(o.TLSConfig, &o.Dialer, &o.ContextTimeoutEnabled, &o.DialerRetries)
			client = redis.NewClusterClient(o)
		}
	default:
		var o *redis.Options
		if o, err = redis.ParseURL(rawURL); err == nil {
			dialing(o.TLSConfig, &o.Dialer, &o.ContextTimeoutEnabled, &o.DialerRetries)
			client, d.only = redis.NewClient(o), o.Addr
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("redis: the URL of %s: %w", u.Host, err)
	}
	return client, d, nil
}
