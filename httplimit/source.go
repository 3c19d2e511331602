package httplimit

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/internal/words"
)

// Source finds a feature in a request. [IP], [Network], [Email], [NewSource] and
// [Join] make Sources.
type Source struct {
	kind   string
	client *ClientIP // of IP and Network, next to find: with of, an address is found without a copy of the request
	of     func(netip.Addr) feature.Feature
	find   func(q *request) (feature.Feature, error)
	err    error // the reason why New must refuse the Source
}

// IP is the feature "ip": the address of the client, as c finds it. A request
// whose client has no address, as on a Unix socket, lacks the feature; if it is refused for
// that, the Limiter's Logger gets a line, one a minute at most.
func IP(c ClientIP) Source { return byClient(feature.KindIP, c, feature.IP) }

// Network is a feature of a kind of your own, such as "net": the network of the
// client's address, of v4Bits or v6Bits. See [feature.Network].
func Network(kind string, c ClientIP, v4Bits, v6Bits int) Source {
	s := byClient(kind, c, func(addr netip.Addr) feature.Feature { return feature.Network(kind, addr, v4Bits, v6Bits) })
	s.err = cmp.Or(s.err, s.of(netip.Addr{}).Err())
	return s
}

func byClient(kind string, c ClientIP, of func(netip.Addr) feature.Feature) Source {
	c.Proxies = slices.Clone(c.Proxies)
	return Source{kind: kind, client: &c, of: of, err: c.check(), find: func(q *request) (feature.Feature, error) { return of(c.Of(q.in)), nil }}
}

// Email is a source of the feature "email": the mail address that v finds. Text
// that is no address is the request's fault, answered with 400.
func Email(v Value) Source { return NewSource(feature.KindEmail, v) }

// reasons tell a client the fault of text that is parsed.
var reasons = map[string]string{
	feature.KindIP:     "must be an IP address",
	feature.KindEmail:  "must be an e-mail address",
	feature.KindDomain: "must be a domain or an e-mail address",
}

// NewSource is a source of features of any kind, as [feature.New] makes
// them from the text that v finds: the kinds "ip", "email" and "domain" are
// parsed, and text of another form is the request's fault, answered with 400.
// Text of any other kind is taken unchanged. NewSource("domain", Form("email")) is
// the domain of a mail address.
//
// The 400 names the form field, the JSON field or the cookie that v reads, and kind for
// any other v: a proxy may have set a header, under a name that is not for clients. New
// refuses a nil Value, and one of this package for an empty or malformed name.
func NewSource(kind string, v Value) Source {
	var err error
	switch {
	case v == nil:
		err = fmt.Errorf("the Value is nil, want a function such as Form(%q)", kind)
	case reflect.ValueOf(v).Pointer() == reflect.ValueOf(nameless).Pointer():
		err = fmt.Errorf("the Value has an empty or malformed name, want one such as Form(%q)", kind)
	}
	return Source{kind: kind, err: err, find: func(q *request) (feature.Feature, error) {
		text, err := q.value(v)
		if err != nil {
			return feature.Feature{}, err
		}
		part := kind
		if q.cursor.text == text {
			part = cmp.Or(q.cursor.source, kind)
		}
		t := feature.New(kind, text)
		if t.Err() != nil {
			return feature.Feature{}, badRequest(part, cmp.Or(reasons[kind], "is not valid"))
		}
		if t.Missing() {
			q.lacks = cmp.Or(q.lacks, part)
		}
		return t, nil
	}}
}

// Join is a source of the feature of all sources together, such as "ip+email": see
// [feature.Join]. A request that lacks one of the features lacks Join.
func Join(sources ...Source) Source {
	sources = slices.Clone(sources)
	var kinds []string
	joined := Source{find: func(q *request) (feature.Feature, error) {
		features := make([]feature.Feature, len(sources))
		for i := range sources {
			var err error
			if features[i], err = sources[i].find(q); err != nil {
				return feature.Feature{}, err
			}
		}
		return feature.Join(features...), nil
	}}
	for i, s := range sources {
		if s.find == nil {
			s.err = fmt.Errorf("Join has the zero Source at %d, want one of IP, Network, Email or NewSource", i)
		}
		kinds, joined.err = append(kinds, s.kind), cmp.Or(joined.err, s.err)
	}
	joined.kind = strings.Join(kinds, "+")
	if len(sources) < 2 {
		joined.err = fmt.Errorf("Join has %s, want two or more", words.Plural(int64(len(sources)), "Source"))
	}
	return joined
}
