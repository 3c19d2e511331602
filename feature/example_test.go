package feature_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/abacus-go/abacus/feature"
)

// The texts by which one log-in is counted: by the address, by its network, by the
// provider of the mailbox, and by the pair of the address and the mailbox.
func Example() {
	n, err := feature.NewNormalizer(feature.Forms{EmailProviders: []feature.EmailProvider{feature.Gmail()}})
	if err != nil {
		log.Fatal(err)
	}
	addr, mail := netip.MustParseAddr("2001:db8:1:2::3"), "Ada.Lovelace+1@GoogleMail.com"
	for _, f := range []feature.Feature{
		feature.IP(addr), feature.Network("net", addr, 24, 48), feature.Domain(mail),
		feature.Join(feature.IP(addr), feature.Email(mail)),
	} {
		fmt.Println(string(n.Append(nil, &f)))
	}
	// Output:
	// ip:2001:db8:1:2::/64
	// net:2001:db8:1::/48
	// domain:gmail.com
	// ip+email:2001:db8:1:2::/64,adalovelace@gmail.com
}
