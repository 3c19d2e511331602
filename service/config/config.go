// Package config reads the configuration file of abacusd: one strict file of YAML, whose
// errors have the line of the fault.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/backend/memcache"
	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/backend/redis"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/document"
	"github.com/abacus-go/abacus/internal/keytext"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
	"github.com/abacus-go/abacus/service/envoy"
)

// Config is the content of a file. Many goroutines may use the methods of a Config at once.
type Config struct {
	decoder
	Store          Store           `yaml:"store"`            // default: memory
	Prefix         string          `yaml:"prefix"`           // of counter.Config
	SecretFile     string          `yaml:"secret_file"`      // counter.Config.Secret
	ReceiptKeyFile string          `yaml:"receipt_key_file"` // limiter.Config.ReceiptKey
	DecideWithin   time.Duration   `yaml:"decide_within"`    // of limiter.Config
	Share          float64         `yaml:"share"`            // of limiter.Config
	Rules          string          `yaml:"rules"`            // the file for package rules; default: none
	Reload         time.Duration   `yaml:"reload"`           // from one read of Rules to the next; default: 5s
	Envoy          Envoy           `yaml:"envoy"`
	Listen         Listen          `yaml:"listen"`
	Connections    int             `yaml:"connections"` // at most, of each listener; default: 4096
	TLS            TLS             `yaml:"tls"`
	Callers        []Caller        `yaml:"callers"`
	Doors          map[string]Door `yaml:"doors"`
	Drain          time.Duration   `yaml:"drain"` // from SIGTERM until listeners close; default: 5s
}

// Envoy is the rate limit service of package envoy, on Listen.GRPC and under /json.
type Envoy struct {
	Rules      string            `yaml:"rules"`      // a file or a folder; default: there is no such service
	OnFailure  limiter.OnFailure `yaml:"on_failure"` // of all rules
	Reflection bool              `yaml:"reflection"`
	Metrics    bool              `yaml:"reference_metrics"` // under the names of the reference service
	Settings   envoy.Settings    // by the environment alone
}

// Listen has the addresses of the listeners.
type Listen struct {
	HTTP  Address `yaml:"http"`
	GRPC  Address `yaml:"grpc"`
	Admin Address `yaml:"admin"`
}

// TLS has the files for TLS on all listeners that are no unix sockets.
type TLS struct {
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	ClientCAFile string `yaml:"client_ca_file"` // of the certificates of clients; default: none is asked for
}

// Caller may use some verbs. All conditions that are set must hold: From, TokenFile, SAN.
type Caller struct {
	Name      string   `yaml:"name"`       // in metrics and logs
	From      []Peers  `yaml:"from"`       // one of them
	TokenFile string   `yaml:"token_file"` // a token in each line
	SAN       string   `yaml:"san"`        // a DNS name or URI of the client's certificate
	May       []Verb   `yaml:"may"`
	Events    []string `yaml:"events"` // default: all
}

// Door is an event for proxies, under /auth/ and its name.
type Door struct {
	Event    string            `yaml:"event"`    // default: the name of the door
	Features map[string]Source `yaml:"features"` // by kind
	Deny     int               `yaml:"deny"`     // 429, 403 or 401; default: 429
	Show     []string          `yaml:"show"`     // of httplimit.Config
}

// Source is the header in which a door finds a feature. The proxy must overwrite the
// header, or append to it.
type Source struct {
	Header  string    `yaml:"header"`
	Proxies []Network `yaml:"proxies"` // for the kind ip: see httplimit.ClientIP
	Hops    int       `yaml:"hops"`    // likewise
}

// Store is the text of a store: memory, redis://..., rediss://..., unix://... or
// memcached://... . It may hold a password, and no String shows it.
type Store struct{ text string }

// UnmarshalText opens the store, without connecting, and keeps the text.
func (s *Store) UnmarshalText(text []byte) error {
	opened := Store{string(text)}
	store, err := opened.Open()
	if err != nil {
		return err
	}
	*s = opened
	return Close(store)
}

// String is the address of the store, without user, password and query.
func (s Store) String() string {
	u, err := url.Parse(cmp.Or(s.text, "memory"))
	if err != nil {
		return "a store" // its error has all of the text
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Open opens the store, without connecting.
func (s Store) Open() (backend.Store, error) {
	switch scheme, _, _ := strings.Cut(s.text, ":"); scheme {
	case "", "memory":
		return memory.New(memory.Config{}), nil
	case "redis", "rediss", "unix":
		return redis.Open(s.text, redis.Config{})
	case "memcached":
		return memcache.New(memcache.Config{}, s.text)
	}
	return nil, errors.New("the scheme of the store is unknown, want memory, redis://host:6379/0 (also rediss://, unix://), or memcached://host:11211,host2:11211")
}

// Close closes a store of Open, or nil.
func Close(s backend.Store) error {
	if c, is := s.(io.Closer); is {
		return c.Close()
	}
	return nil
}

// InProcess reports whether the store is memory.
func (s Store) InProcess() bool { return s.text == "" || s.text == "memory" }

// Address is host:port, or unix: and the path of a socket.
type Address struct{ Network, Address string }

// UnmarshalText reads an Address.
func (a *Address) UnmarshalText(text []byte) error {
	if path, is := strings.CutPrefix(string(text), "unix:"); is && path != "" {
		*a = Address{"unix", path}
		return nil
	}
	host, port, err := net.SplitHostPort(string(text))
	if _, bad := net.LookupPort("tcp", port); err != nil || bad != nil || host == "" || port == "" {
		return fmt.Errorf("the address is %q, want host:port such as 127.0.0.1:8080, or unix:/run/abacusd/http.sock", text)
	}
	*a = Address{"tcp", string(text)}
	return nil
}

// Local reports whether no other machine can connect.
func (a Address) Local() bool {
	host, _, _ := net.SplitHostPort(a.Address)
	ip, err := netip.ParseAddr(host)
	return a.Network != "tcp" || host == "localhost" || err == nil && ip.IsLoopback()
}

// Network is a network of addresses.
type Network struct{ netip.Prefix }

// UnmarshalText reads a network or an address.
func (n *Network) UnmarshalText(text []byte) error {
	addr, err := netip.ParseAddr(string(text))
	if n.Prefix = netip.PrefixFrom(addr, addr.BitLen()); err != nil {
		n.Prefix, err = netip.ParsePrefix(string(text))
	}
	if err != nil || n.Prefix != n.Masked() || n.Addr().Is4In6() || n.Addr().Zone() != "" {
		return fmt.Errorf("the network is %q, want an address, or a network such as 10.0.0.0/8 without further bits", text)
	}
	return nil
}

// Peers are the addresses of a network, or the processes that may use the unix sockets.
type Peers struct {
	Unix bool
	Network
}

// UnmarshalText reads "unix", a network or an address.
func (p *Peers) UnmarshalText(text []byte) error {
	if p.Unix = string(text) == "unix"; p.Unix {
		return nil
	}
	return p.Network.UnmarshalText(text)
}

// Verb is a thing that a caller may do.
type Verb string

// All verbs.
const (
	Auth     Verb = "auth" // the doors
	Take     Verb = "take"
	Peek     Verb = "peek"
	Charge   Verb = "charge"
	Refund   Verb = "refund"
	Usage    Verb = "usage"
	Forget   Verb = "forget"
	Erase    Verb = "erase"
	Status   Verb = "status"
	RLS      Verb = "rls"      // the rate limit service of Envoy
	Override Verb = "override" // there: limits of a request, and hits that are given back
	Metrics  Verb = "metrics"
	Pprof    Verb = "pprof"
)

// Verbs are all verbs, and Calls those of programs.
var (
	Verbs = []Verb{Auth, Take, Peek, Charge, Refund, Usage, Forget, Erase, Status, RLS, Override, Metrics, Pprof}
	Calls = Verbs[1:9]
)

// Guarded reports whether a network is not enough to be granted v: v shows or changes
// the counts of others, or the inside of the process.
func (v Verb) Guarded() bool {
	return v == Usage || v == Forget || v == Pprof || v == Erase || v == Status
}

// ofAll reports whether v has no event, and concerns all of them.
func (v Verb) ofAll() bool { return v == RLS || v == Erase || v == Status }

// UnmarshalText reads a Verb.
func (v *Verb) UnmarshalText(text []byte) error {
	if *v = Verb(text); !slices.Contains(Verbs, *v) {
		return fmt.Errorf("the verb is %q, want one of %v", text, Verbs)
	}
	return nil
}

// Parse reads data of the file at path. Paths in the file are relative to its folder. Then
// change may set what wins over the file, and all is checked. The error is that of change,
// with a Config of nil, or joins a rules.Error for each fault, in the order of lines. A
// Config with faults is there for the faults of what it names.
func Parse(path string, data []byte, change func(*Config) error) (*Config, error) {
	c := &Config{decoder: decoder{file: path, lines: map[string]int{}}}
	c.Reader = c.fail
	if n := c.Reader.Parse(data, rules.MaxSize, "the keys rules, doors and listen"); n != nil {
		c.value(n, reflect.ValueOf(c).Elem(), "")
	}
	files := []*string{&c.SecretFile, &c.ReceiptKeyFile, &c.Rules, &c.Envoy.Rules, &c.TLS.CertFile, &c.TLS.KeyFile, &c.TLS.ClientCAFile}
	for i := range c.Callers {
		files = append(files, &c.Callers[i].TokenFile)
	}
	for _, file := range files {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	if err := change(c); err != nil {
		return nil, err
	}
	c.check()
	return c, c.Join(c.faults...)
}

// check finds the faults of values that are well-formed by themselves, and sets
// defaults.
func (c *Config) check() {
	c.Drain, c.Reload = cmp.Or(c.Drain, 5*time.Second), cmp.Or(c.Reload, rules.DefaultEvery)
	if c.lines["connections"] == 0 {
		c.Connections = 4096
	}
	if c.Prefix != "" {
		err := keytext.CheckPrefix(c.Prefix)
		c.want(err == nil, "prefix", "%s", strings.Replace(fmt.Sprint(err), "Config.Prefix", "the value", 1))
	}
	c.want(c.Reload >= time.Millisecond, "reload", "the value is %s, want 1ms or more", c.Reload)
	c.want(c.Connections >= 1, "connections", "the value is %d, want 1 or more", c.Connections)
	c.want(c.Share >= 0 && c.Share <= 1, "share", "the value is %v, want above 0 and at most 1", c.Share)
	if len(c.faults) > 0 { // what it names is looked at with the defaults
		c.Reload, c.Share, c.Prefix = rules.DefaultEvery, 0, ""
	}
	none, ruled := Address{}, c.Rules != "" || c.lines["rules"] > 0
	c.want(ruled || c.Envoy.Rules != "" || c.Listen.GRPC != none, "rules", "the key is missing, want a file of rules, or envoy.rules")
	c.want(ruled || c.Doors == nil, "doors", "there are no rules for doors, want the key rules")
	c.want(!ruled || c.Listen.HTTP != none, "listen.http", "the key is missing, want an address such as 127.0.0.1:8080")
	c.want(c.Envoy.Rules == "" || c.Listen.GRPC != none, "listen.grpc", "the key is missing, want an address such as 127.0.0.1:8081 for envoy.rules")
	c.want(c.Envoy.Rules != "" || c.Listen.GRPC == none, "envoy.rules", "the key is missing, want the rules for listen.grpc")
	for i, address := range []Address{c.Listen.HTTP, c.Listen.GRPC, c.Listen.Admin} {
		c.want(c.lines["callers"] > 0 || address.Local(), []string{"listen.http", "listen.grpc", "listen.admin"}[i],
			"the address is open to other machines, want a loopback address or a unix socket, or the key callers")
	}
	for _, key := range []string{"tls.cert_file", "tls.key_file"} {
		c.want(c.lines["tls"] == 0 || c.lines[key] > 0, key, "the key is missing, want a file in PEM")
	}
	names := map[string]bool{}
	for i := range c.Callers {
		path := fmt.Sprintf("callers[%d]", i)
		c.checkCaller(&c.Callers[i], path, names)
		c.want(ruled || c.Callers[i].Events == nil, path+".events", "there are no rules for events, want the key rules")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Doors)) {
		door := c.Doors[name]
		c.checkDoor(&door, name)
		c.Doors[name] = door
	}
}

var simple = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

const wantName = "want up to 64 letters, digits, dots, dashes and underscores"

func (c *Config) checkCaller(caller *Caller, path string, names map[string]bool) {
	has := func(key string) bool { return c.lines[path+"."+key] > 0 }
	identified := has("token_file") || has("san")
	c.want(identified || has("from"), path+".from", "the caller could be anyone, want from, token_file or san")
	c.want(simple.MatchString(caller.Name) && !names[caller.Name], path+".name", "the name is %q, %s, and each name once", caller.Name, wantName)
	names[caller.Name] = true
	c.want(caller.SAN == "" || c.lines["tls.client_ca_file"] > 0, path+".san", "no certificate is asked for, want tls.client_ca_file")
	c.want(caller.May != nil, path+".may", "the key is missing, want some of %v", Verbs)
	for i, verb := range caller.May {
		c.want(identified || !verb.Guarded(), fmt.Sprintf("%s.may[%d]", path, i), "a network is not enough for %s, want token_file or san", verb)
		c.want(caller.Events == nil || !verb.ofAll(), path+".events", "%s has no events, want a caller of its own", verb)
	}
}

// checkDoor checks a door, and sets defaults.
func (c *Config) checkDoor(door *Door, name string) {
	path := document.Join("doors", name)
	door.Event, door.Deny = cmp.Or(door.Event, name), cmp.Or(door.Deny, 429)
	c.want(simple.MatchString(name), path, "the name is %q, %s", name, wantName)
	c.want(door.Deny == 401 || door.Deny == 403 || door.Deny == 429, path+".deny", "the status is %d, want 429, 403 or 401", door.Deny)
	c.want(door.Features != nil, path+".features", "the key is missing, want a header for each kind of feature")
	for _, kind := range slices.Sorted(maps.Keys(door.Features)) {
		source := door.Features[kind]
		at := document.Join(path+".features", kind)
		byIP := kind == feature.KindIP
		c.want(feature.IsKind(kind) && !strings.Contains(kind, "+"), at, "the kind is %q, want printable ASCII without colon and plus sign", kind)
		c.want(validHeader.MatchString(source.Header), at+".header", "the header is %q, want the name of a header that the proxy sets", source.Header)
		c.want(!byIP || source.Proxies != nil, at+".proxies", "the key is missing, want the networks of the proxies, which connect here")
		c.want(byIP || source.Proxies == nil && source.Hops == 0, at, "proxies and hops are for the kind ip alone")
		c.want(source.Hops >= 0, at+".hops", "the value is %d, want 0 or more", source.Hops)
	}
	if slices.ContainsFunc(c.faults, func(err error) bool { return within(err.(*rules.Error).Path, path+".features") }) {
		c.unread = append(c.unread, path+".features") // as a whole
	}
}

var validHeader = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]+$`)
