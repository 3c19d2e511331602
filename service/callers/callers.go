// Package callers decides who may use which verbs of abacusd, by the network, the token
// and the certificate of a client.
package callers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/abacus-go/abacus/service/config"
)

// Set is the set of all callers. Many goroutines may use a Set at once.
type Set struct {
	callers []caller
	tokens  bool // a caller needs one
	now     func() time.Time
}

type caller struct {
	config.Caller
	tokens *tokens // nil: no token is needed
}

// local are the peers that need no caller in a configuration without callers.
var local = config.Caller{Name: "local", From: []config.Peers{
	{Unix: true}, {Network: config.Network{Prefix: netip.MustParsePrefix("127.0.0.0/8")}}, {Network: config.Network{Prefix: netip.MustParsePrefix("::1/128")}},
}}

// New returns the callers of a configuration, or, if there are none, the processes of
// this machine with the verbs for which a network is enough. The error joins a fault for
// each token file that cannot be used.
func New(cfg *config.Config) (*Set, error) {
	s, configured := &Set{now: time.Now}, cfg.Callers
	if len(configured) == 0 {
		only := local
		only.May = slices.DeleteFunc(slices.Clone(config.Verbs), config.Verb.Guarded)
		configured = []config.Caller{only}
	}
	var errs []error
	for i, c := range configured {
		of := caller{Caller: c}
		if c.TokenFile != "" {
			s.tokens, of.tokens = true, &tokens{file: c.TokenFile}
			errs = append(errs, cfg.Fault(fmt.Sprintf("callers[%d].token_file", i), of.tokens.read()))
		}
		s.callers = append(s.callers, of)
	}
	return s, errors.Join(errs...)
}

// Peer is the client of a request.
type Peer struct {
	Addr  netip.Addr        // the zero Addr on a unix socket
	Token string            // "" if there is none
	Cert  *x509.Certificate // verified when the connection began; nil if there is none
}

// PeerOf returns the client that sent r. Of several lines of Authorization none is a
// token.
func PeerOf(r *http.Request) Peer {
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero Addr on a unix socket
	return NewPeer(from.Addr(), r.Header.Values("Authorization"), r.TLS)
}

// NewPeer returns the client with the address of a connection, the lines of
// Authorization, and the state of TLS or nil.
func NewPeer(addr netip.Addr, authorization []string, state *tls.ConnectionState) (p Peer) {
	p.Addr = addr.Unmap().WithZone("")
	if len(authorization) == 1 {
		if scheme, token, _ := strings.Cut(authorization[0], " "); strings.EqualFold(scheme, "Bearer") {
			p.Token = strings.TrimSpace(token)
		}
	}
	if state != nil && len(state.VerifiedChains) > 0 {
		p.Cert = state.PeerCertificates[0]
	}
	return p
}

// Grants are the callers that a client is.
type Grants struct {
	Peer
	callers []*config.Caller
	strange bool // the client has a token that is none of the callers'
}

// Of returns the callers with conditions that p meets.
func (s *Set) Of(p Peer) Grants {
	now, g := s.now(), Grants{Peer: p, strange: s.tokens && p.Token != ""}
	for i := range s.callers {
		c := &s.callers[i]
		has := c.tokens != nil && c.tokens.has(p.Token, now)
		g.strange = g.strange && !has
		if c.from(p.Addr) && c.certified(p.Cert, now) && (c.tokens == nil || has) {
			g.callers = append(g.callers, &c.Caller)
		}
	}
	return g
}

// May returns the name of the first caller of g that may do verb with event, "" for
// none. An event of "" stands for any.
//
// A client with a token that no caller has is none, whatever its network: its token was
// mistyped or has been withdrawn, and whoever sends a token means to be known by it. So a
// wrong token is seen at once, and not when the client moves to another network, and the
// calls of a client that was locked out are not counted under the name of its network. The
// doors are an exception: proxies pass on the tokens that visitors send to the application.
// Where no caller needs a token, none is looked at.
func (g Grants) May(verb config.Verb, event string) string {
	for _, c := range g.callers {
		if (!g.strange || verb == config.Auth) && slices.Contains(c.May, verb) && (event == "" || c.Events == nil || slices.Contains(c.Events, event)) {
			return c.Name
		}
	}
	return ""
}

// Refuse returns a reason of nil if the client may do verb with event, and else the status
// of HTTP and the reason: 401 for a client that is no caller, 403 for any other.
func (g Grants) Refuse(verb config.Verb, event string) (status int, reason error) {
	switch {
	case g.May(verb, event) != "":
		return http.StatusOK, nil
	case len(g.callers) == 0 || g.strange:
		return http.StatusUnauthorized, errors.New("no caller of the configuration has the address, the token and the certificate of this request")
	case event == "":
		return http.StatusForbidden, fmt.Errorf("no caller with this address, token and certificate may use %s", verb)
	}
	return http.StatusForbidden, fmt.Errorf("no caller with this address, token and certificate may use %s with the event %q", verb, event)
}

// from reports whether addr, or a unix socket for the zero Addr, is in From.
func (c *caller) from(addr netip.Addr) bool {
	return c.From == nil || slices.ContainsFunc(c.From, func(p config.Peers) bool {
		return p.Unix && !addr.IsValid() || !p.Unix && p.Contains(addr)
	})
}

// certified reports whether cert has the SAN. A connection may outlast its certificate.
func (c *caller) certified(cert *x509.Certificate, now time.Time) bool {
	if c.SAN == "" {
		return true
	}
	if cert == nil || now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return false
	}
	for _, uri := range cert.URIs {
		if uri.String() == c.SAN {
			return true
		}
	}
	return slices.Contains(cert.DNSNames, c.SAN)
}
