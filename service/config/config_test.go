package config

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/internal/testkit/long"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
)

const full = `store: redis://user:secret-word@127.0.0.1:6379/0
prefix: shop
secret_file: secret
receipt_key_file: /etc/receipt.key
decide_within: 15ms
share: 0.5
rules: rules.yaml
listen: {http: "0.0.0.0:8080", grpc: "[::1]:8081", admin: unix:/run/abacusd/admin.sock}
tls: {cert_file: c.pem, key_file: k.pem, client_ca_file: ca.pem}
callers:
  - {name: nginx, from: [10.0.0.0/8, unix], may: [auth]}
  - {name: shop, token_file: shop.token, may: [take, peek], events: [signup]}
  - {name: support, san: support.internal, may: [usage, forget, pprof]}
doors:
  signup:
    event: sign-up
    features:
      ip: {header: X-Forwarded-For, proxies: [10.0.0.0/8], hops: 2}
      user: {header: X-User}
    deny: 403
    show: [ip, user]
drain: 2s
envoy: {rules: envoy, on_failure: fail-local, reflection: true}
connections: 500
`

func unchanged(*Config) error { return nil }

func TestParse(t *testing.T) {
	network := Network{netip.MustParsePrefix("10.0.0.0/8")}
	got, err := Parse("/etc/abacusd/abacusd.yaml", []byte(full), unchanged)
	require.NoError(t, err)
	got.decoder = decoder{}
	require.Equal(t, &Config{
		Store: Store{"redis://user:secret-word@127.0.0.1:6379/0"}, Prefix: "shop",
		SecretFile: "/etc/abacusd/secret", ReceiptKeyFile: "/etc/receipt.key",
		DecideWithin: 15 * time.Millisecond, Share: 0.5, Rules: "/etc/abacusd/rules.yaml", Reload: 5 * time.Second,
		Envoy:  Envoy{Rules: "/etc/abacusd/envoy", OnFailure: limiter.FailLocal, Reflection: true},
		Listen: Listen{HTTP: Address{"tcp", "0.0.0.0:8080"}, GRPC: Address{"tcp", "[::1]:8081"}, Admin: Address{"unix", "/run/abacusd/admin.sock"}},
		TLS:    TLS{"/etc/abacusd/c.pem", "/etc/abacusd/k.pem", "/etc/abacusd/ca.pem"},
		Callers: []Caller{
			{Name: "nginx", From: []Peers{{Network: network}, {Unix: true}}, May: []Verb{Auth}},
			{Name: "shop", TokenFile: "/etc/abacusd/shop.token", May: []Verb{Take, Peek}, Events: []string{"signup"}},
			{Name: "support", SAN: "support.internal", May: []Verb{Usage, Forget, Pprof}},
		},
		Doors: map[string]Door{"signup": {Event: "sign-up", Deny: 403, Show: []string{"ip", "user"}, Features: map[string]Source{
			"ip": {Header: "X-Forwarded-For", Proxies: []Network{network}, Hops: 2}, "user": {Header: "X-User"},
		}}},
		Drain: 2 * time.Second, Connections: 500,
	}, got)
	for text, want := range map[string]string{
		"redis://user:secret-word@127.0.0.1:6379/0?password=secret-word": "redis://127.0.0.1:6379/0", "": "memory", "memory": "memory",
		"unix://user:secret-word@/run/redis.sock?db=1": "unix:///run/redis.sock", "memcached://10.0.0.1:11211,10.0.0.2:11211": "memcached://10.0.0.1:11211,10.0.0.2:11211",
		"redis://%zz:secret-word@h": "a store",
	} {
		require.Equal(t, want, Store{text}.String())
	}

	least, err := Parse("f", []byte("rules: r\nlisten: {http: localhost:80}\ndoors: {a: {features: {user: {header: X}}}}"), unchanged)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, least.Drain)
	require.Equal(t, 4096, least.Connections)
	require.Equal(t, Door{Event: "a", Deny: 429, Features: map[string]Source{"user": {Header: "X"}}}, least.Doors["a"])
}

// Each row changes a line of the full file, or is a file by itself. The error begins
// with the line, and never has a password.
func TestFaults(t *testing.T) {
	for _, row := range []struct{ was, is, want string }{
		{"share: 0.5", "sahre: 0.5", `6: sahre: the key is unknown, want "store", "prefix", "secret_file"`},
		{"share: 0.5", "share: 1.5", "6: share: the value is 1.5, want above 0"},
		{"share: 0.5", "share: .nan", "6: share: the value is NaN, want above 0"},
		{"share: 0.5", "share: NaN", `6: share: the value is the text "NaN", want a number`},
		{"share: 0.5", "share: half", `6: share: the value is the text "half", want a number`},
		{"share: 0.5", "share: 0.5\nshare: 0.4", "7: share: the key is in line 6 already"},
		{"share: 0.5", "share:", "6: share: the value is empty"},
		{"share: 0.5", "share: [1]", "6: share: the value is a list, want a number"},
		{"share: 0.5", "share: !!float 1", "6: share: the tag !!float is not supported"},
		{"share: 0.5", "1: 2", "6: the value is the number 1, want a key as text"},
		{"share: 0.5", "<<: {share: 1}", "6: the value is <<, not text, want a key as text"},
		{"prefix: shop", "prefix: 's hop'", `2: prefix: the value is "s hop", want printable ASCII`},
		{"share: 0.5", "---", "6: a second document begins here"},
		{"share: 0.5", "share: 'x", "6: YAML: "},
		{"share: 0.5", "\tshare: 1", "6: a tab in the indentation"},
		{"prefix: shop", "prefix: 7", "2: prefix: the value is the number 7, want text"},
		{"prefix: shop", "prefix: \xff", "2: a byte that is not UTF-8"},
		{"prefix: shop", "prefix: &a shop", "2: prefix: the anchor &a is not supported"},
		{"prefix: shop", "prefix: *a", "2: YAML: unknown anchor 'a' referenced"},
		{"drain: 2s", "drain: 0s", "22: drain: the duration is 0s, want more than 0s"},
		{"drain: 2s", "drain: 2", "22: drain: the value is the number 2, want a duration"},
		{"drain: 2s", "reload: 1us", "22: reload: the value is 1µs, want 1ms"},
		{"connections: 500", "connections: 0", "24: connections: the value is 0, want 1 or more"},
		{"connections: 500", "connections: -1", "24: connections: the value is -1, want 1 or more"},
		{"connections: 500", "connections: many", `24: connections: the value is the text "many", want a whole number`},
		{"rules: rules.yaml\n", "", "14: doors: there are no rules for doors"},
		{"rules: rules.yaml", "rules:", "7: rules: the value is empty"},
		{full, "listen: {http: 'localhost:80'}", "1: rules: the key is missing"},
		{"rules: envoy", "rules: ''", "23: envoy.rules: the value is empty"},
		{"envoy: {rules: envoy, ", "envoy: {", "23: envoy.rules: the key is missing, want the rules for listen.grpc"},
		{`grpc: "[::1]:8081", `, "", "8: listen.grpc: the key is missing, want an address"},
		{"on_failure: fail-local", "on_failure: fail", `23: envoy.on_failure: `},
		{"reflection: true", "reflection: yes", `23: envoy.reflection: the value is the text "yes", want true or false`},
		{"reflection: true", "Settings: {Shadow: true}", `23: envoy.Settings: the key is unknown`},
		{"may: [auth]", "may: [rls], events: [a]", "11: callers[0].events: rls has no events"},
		{"rules: rules.yaml", "rules: {events: {}}", "7: rules: the value is a mapping, want text"},
		{"redis://user:secret-word@127.0.0.1:6379/0", "redis://user:secret-word@h:port/x", "1: store: "},
		{"redis://user:secret-word@127.0.0.1:6379/0", "mysql://user:secret-word@h", "1: store: the scheme of the store is unknown"},
		{"redis://user:secret-word@127.0.0.1:6379/0", "memcached://:x:y", "1: store: "},
		{`http: "0.0.0.0:8080"`, `http: ":8080"`, `8: listen.http: the address is ":8080", want host:port`},
		{`http: "0.0.0.0:8080"`, `http: "h:no-port"`, "8: listen.http: the address is"},
		{`http: "0.0.0.0:8080", `, "", "8: listen.http: the key is missing"},
		{"admin: unix:/run/abacusd/admin.sock", "admin: 'unix:'", "8: listen.admin: the address is"},
		{", key_file: k.pem", "", "9: tls.key_file: the key is missing"},
		{"name: nginx", "name: 'nginx {}'", "11: callers[0].name: the name is"},
		{"name: nginx", "name: nginx {}", "11: YAML: did not find"},
		{"name: shop", "name: nginx", "12: callers[1].name: the name is \"nginx\""},
		{"from: [10.0.0.0/8, unix], ", "", "11: callers[0].from: the caller could be anyone"},
		{"from: [10.0.0.0/8, unix], ", "from: [10.0.0.1/8], ", `11: callers[0].from[0]: the network is "10.0.0.1/8"`},
		{"from: [10.0.0.0/8, unix], ", `from: ["::ffff:10.0.0.1"], `, "11: callers[0].from[0]: the network is"},
		{"from: [10.0.0.0/8, unix], ", "from: [], ", "11: callers[0].from: the list is empty"},
		{"may: [auth]", "may: [auth, fly]", `11: callers[0].may[1]: the verb is "fly", want one of`},
		{"may: [usage, forget, pprof]", "may: [erase], events: [a]", "13: callers[2].events: erase has no events"},
		{"may: [usage, forget, pprof]", "may: [status], events: [a]", "13: callers[2].events: status has no events"},
		{"may: [auth]", "may: [status, erase]", "11: callers[0].may[0]: a network is not enough for status"},
		{"may: [auth]", "may: [auth, erase]", "11: callers[0].may[1]: a network is not enough for erase"},
		{"may: [auth]", "may: [auth, forget]", "11: callers[0].may[1]: a network is not enough for forget"},
		{", may: [auth]", "", "11: callers[0].may: the key is missing"},
		{", client_ca_file: ca.pem", "", "13: callers[2].san: no certificate is asked for"},
		{"deny: 403", "deny: 200", "20: doors.signup.deny: the status is 200"},
		{"deny: 403", "deny: 4.5", "20: doors.signup.deny: the value is the number 4.5, want a whole number"},
		{"user: {header: X-User}", "user: {header: X User}", `19: doors.signup.features.user.header: the header is "X User"`},
		{"user: {header: X-User}", "user: {}", "19: doors.signup.features.user: the mapping is empty"},
		{"user: {header: X-User}", "user: {header: X-User, hops: 1}", "19: doors.signup.features.user: proxies and hops are for the kind ip"},
		{"user: {header: X-User}", "ip+user: {header: X-User}", `19: doors.signup.features."ip+user": the kind is`},
		{"proxies: [10.0.0.0/8], ", "", "18: doors.signup.features.ip.proxies: the key is missing"},
		{"hops: 2", "hops: -1", "18: doors.signup.features.ip.hops: the value is -1"},
		{"  signup:\n", "  a/b:\n", `16: doors."a/b": the name is "a/b"`},
		{full, "", "1: the file is empty"},
		{full, "# nothing", "1: the file has comments only"},
		{full, "[]", "1: the value is a list, want a mapping"},
		{full, "a: &x [*x]", "1: a: the key is unknown"},
		{full, strings.Repeat("[", 20_000), "YAML: exceeded max depth"},
		{full, strings.Repeat("#", rules.MaxSize+1), "1: the file has more than"},
		{full, "rules: r\nlisten: {http: '0.0.0.0:80'}", "2: listen.http: the address is open to other machines"},
		{full, "rules: r\nlisten: {http: 'localhost:80', admin: '[::]:81'}", "2: listen.admin: the address is open to other machines"},
	} {
		require.Contains(t, full, row.was)
		_, err := Parse("f.yaml", []byte(strings.Replace(full, row.was, row.is, 1)), unchanged)
		require.ErrorContains(t, err, row.want, row.is[:min(len(row.is), 80)])
		require.True(t, strings.HasPrefix(err.Error(), "f.yaml:"), err)
		require.NotContains(t, err.Error(), "secret-word")
		var fault *rules.Error
		require.True(t, errors.As(err, &fault))
	}
}

// All faults come at once, in the order of lines, and none that is only the effect of
// another.
func TestAllFaults(t *testing.T) {
	for text, want := range map[string][]string{
		`drain: never
listen: {http: x, admin: "0.0.0.0:1"}
stores: y
rules: [r]
envoy: {on_failure: fail}
tls: {cert_file: c, key_file: [k], ca: x}
connections: 0
share: half
`: {"1: drain", "2: listen.http", "2: listen.admin", "3: stores", "4: rules", "5: envoy.on_failure", "6: tls.key_file", "6: tls.ca", "7: connections", "8: share"},
		`rules: r
listen: {http: "0.0.0.0:80", grpc: "localhost:81"}
envoy: 7
callers:
  - 7
  - {name: a b, form: [10.0.0.1], may: [fly, usage]}
  - {name: c, from: [10.0.0.1/8], san: a, events: []}
doors:
  a: 7
  b: {deny: 404, features: {ip: 1, user: {header: "X Y"}, "a+b": {header: X}}, show: x}
  d: {deny: 404, deny: 405, feature: {}}
  e/e: {deny: x}
`: {
			"3: envoy", "5: callers[0]", "6: callers[1].form", "6: callers[1].may[0]", "6: callers[1].from", "6: callers[1].name", "6: callers[1].may[1]",
			"7: callers[2].from[0]", "7: callers[2].events", "7: callers[2].san", "7: callers[2].may", "9: doors.a",
			"10: doors.b.features.ip", "10: doors.b.show", "10: doors.b.deny", `10: doors.b.features."a+b"`, "10: doors.b.features.user.header",
			"11: doors.d.deny", "11: doors.d.feature", "11: doors.d.features", `12: doors."e/e".deny`, `12: doors."e/e"`, `12: doors."e/e".features`,
		},
		"rules: 'x": {"1: "},
		"listen: {http: 'localhost:80', grpc: 'localhost:81'}\ncallers: [{name: a, from: [10.0.0.1], may: [take], events: [a]}]": {"1: envoy.rules", "2: callers[0].events"},
	} {
		_, err := Parse("f", []byte(text), unchanged)
		var got []string
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			fault := err.(*rules.Error)
			got = append(got, fmt.Sprintf("%d: %s", fault.Line, fault.Path))
		}
		require.Equal(t, want, got, "%v", err)
	}
}

// A fault of what a file names has the line of the name, unless the name has a fault.
func TestFaultOf(t *testing.T) {
	c, err := Parse("f", []byte("rules: r\nlisten: {http: 'localhost:80'}\ncallers:\n  - {name: a, token_file: t, may: [take]}\n  - {token_file: [], may: [take]}\n"), unchanged)
	require.ErrorContains(t, err, "5: callers[1]")
	none := c.Fault("callers[0].token_file", os.ErrNotExist)
	require.EqualError(t, none, "f:4: callers[0].token_file: file does not exist")
	require.ErrorIs(t, none, os.ErrNotExist)
	require.NoError(t, c.Fault("callers[0].token_file", nil))
	require.NoError(t, c.Fault("callers[1].token_file", os.ErrNotExist))
	other := &rules.Error{File: "r", Line: 2, Err: os.ErrInvalid}
	require.EqualError(t, c.Join(nil, errors.Join(other, none), c.Fault("rules", os.ErrNotExist)), "f:1: rules: file does not exist\nf:4: callers[0].token_file: file does not exist\nr:2: invalid argument")
	require.NoError(t, c.Join(nil, nil))
}

// Whatever happens to a file, there is an error with a line, or a configuration that is
// closed to those whom it does not name.
func TestDamagedFiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	good := 0
	for range long.Rounds(2_000, 100_000) {
		data := []byte(full)
		for range 1 + random.IntN(6) {
			i, j := random.IntN(len(data)), random.IntN(len(full))
			switch random.IntN(3) {
			case 0:
				data[i] = byte(random.Uint32())
			case 1:
				data = slices.Delete(data, i, min(len(data), i+random.IntN(20)))
			default:
				data = slices.Insert(data, i, []byte(full[j:min(len(full), j+20)])...)
			}
		}
		c, err := Parse("f", data, unchanged)
		var fault *rules.Error
		if err == nil {
			good++
			require.True(t, c.Rules != "" && (c.Callers != nil || c.Listen.HTTP.Local() && c.Listen.Admin.Local()), "%s", data)
			for _, caller := range c.Callers {
				require.True(t, caller.May != nil && (caller.From != nil || caller.TokenFile != "" || caller.SAN != ""), "%s", data)
			}
		} else if errors.As(err, &fault) {
			require.True(t, fault.Line > 0 && fault.Line <= 1+bytes.Count(data, []byte("\n")), "%v\n%s", err, data)
		} else {
			t.Fatalf("got %v, want a rules.Error", err)
		}
	}
	require.Positive(t, good)
}
