package limiter

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/tiers"
)

// MaxReceipt is the largest size of a receipt in bytes. A receipt of one address and
// one account has about 150 bytes.
const MaxReceipt = 64 << 10

// Errors of RefundReceipt. Nothing was given back. [errors.Is] finds ErrReceipt in all
// of them.
var (
	ErrReceipt        = errors.New("the receipt is refused")
	ErrReceiptExpired = fmt.Errorf("%w: it has expired, since its hits have left all windows", ErrReceipt)
	ErrReceiptUsed    = fmt.Errorf("%w: its hits were given back before", ErrReceipt)

	errNoReceipt = fmt.Errorf("%w: want the bytes of a Limiter with the same Config.ReceiptKey, and with the Prefix, Secret, Skew and Settle of this Counter", ErrReceipt)
)

// A receipt is a version, a salt, and its hits under AES-256-GCM. The key is of the salt
// and of Config.ReceiptKey by HKDF, and used once, so that the nonce is always zero.
const (
	receiptVersion = 1
	saltSize       = 16
	leastReceipt   = 1 + saltSize + 16 // with the tag of GCM
)

// receiptPrefix begins the Feature of the key that counts the refunds of a receipt; the
// salt follows. No kind is empty, so no feature has such a key.
const receiptPrefix = ":receipt:"

// receiptSecret is the secret of receipts under key, for hits that are counted by c; nil
// without a key.
func receiptSecret(key []byte, c *counter.Counter) ([]byte, error) {
	switch n := len(key); {
	case n == 0:
		return nil, nil
	case n < 16:
		return nil, fmt.Errorf("limiter: Config.ReceiptKey has %d bytes, want at least 16 random bytes, or none for no receipts", n)
	}
	return hkdf.Key(sha256.New, key, nil, "abacus receipt "+storedAs(c), 32)
}

// storedAs is equal for Counters with equal stored keys for equal ladders.
func storedAs(c *counter.Counter) string {
	cfg := c.Config()
	return fmt.Sprintf("%q %d %d %q", cfg.Prefix, cfg.Skew, cfg.Settle, inner(c).Redact(counter.Key{Event: "receipt", Feature: "receipt"}).Feature)
}

// Receipt moves the hits of v into bytes that any process can give back by
// RefundReceipt, if its Limiter has the same Config.ReceiptKey and a Counter with the
// same Config. v itself can then no longer be refunded, and its hits are no longer
// open: see AllowOpen. A Verdict without hits has no receipt, which is nil.
//
// The bytes are encrypted and authenticated, since they name the features: whoever
// keeps them learns no more than their length, and cannot change them. They are not
// bound to a user: a program that gives them to a client has to trust whoever returns
// them with one refund.
//
// It is an error if Config.ReceiptKey is empty, if a copy of v was refunded, if v or a
// copy has a receipt already, if the features are too long for MaxReceipt, and if the
// hits were counted in this process since the store had failed. v is then unchanged.
func (l *Limiter) Receipt(v *Verdict) ([]byte, error) {
	switch {
	case l.receipts == nil:
		return nil, errNoReceiptKey("Receipt")
	case v.At().IsZero():
		return nil, nil
	case v.local:
		return nil, errors.New("limiter: Receipt: the hits were counted in this process, since the store has failed, want a Refund of the Verdict")
	}
	hits, err := inner(l.counter).Hits(&v.Verdict)
	if err != nil {
		return nil, fmt.Errorf("limiter: Receipt: %w", err)
	}
	sealed := make([]byte, 1+saltSize, 256)
	sealed[0] = receiptVersion
	_, _ = rand.Read(sealed[1:]) // never fails
	seal, err := l.sealOf(sealed[1:])
	if err != nil {
		return nil, fmt.Errorf("limiter: Receipt: %w", err)
	}
	stored := storedAs(l.counter)
	hits = slices.DeleteFunc(hits, func(hit counter.Ask) bool { return storedAs(hit.On) != stored }) // of a Former
	sealed = seal.Seal(sealed, make([]byte, seal.NonceSize()), encodeHits(v.At(), hits), sealed[:1])
	switch {
	case len(sealed) > MaxReceipt:
		return nil, fmt.Errorf("limiter: Receipt: the receipt has %d bytes, want at most %d", len(sealed), MaxReceipt)
	case !inner(l.counter).Redeem(&v.Verdict):
		return nil, errors.New("limiter: Receipt: the Verdict was refunded, settled or has a receipt already, want one of them")
	}
	v.open.close(0)
	return sealed, nil
}

// RefundReceipt gives back the hits of a receipt, as [Limiter.Refund] does, for a
// program that has no Verdict any more, or for another process. The rules may have
// changed since, and the event may be gone.
//
// A receipt is refunded once, by all processes together: a key of the store counts
// the refunds, for as long as the ladder keeps the hits. So that the same hits are
// never given back twice, a receipt counts as refunded once its refund has begun, even
// if the store fails then. A refund that fails before, as an [counter.ErrStore] of the
// first step, may be tried again.
//
// The errors of a wrong receipt are [ErrReceipt], [ErrReceiptExpired] and
// [ErrReceiptUsed]. A local counter that has mirrored the hits keeps them until they
// leave their windows, and so does a Rule.Former with another Prefix, Secret, Skew or
// Settle.
func (l *Limiter) RefundReceipt(ctx context.Context, receipt []byte) error {
	if l.receipts == nil {
		return errNoReceiptKey("RefundReceipt")
	}
	if err := l.refundReceipt(ctx, receipt); err != nil {
		return fmt.Errorf("limiter: RefundReceipt: %w", err)
	}
	return nil
}

func (l *Limiter) refundReceipt(ctx context.Context, receipt []byte) error {
	if len(receipt) < leastReceipt || len(receipt) > MaxReceipt || receipt[0] != receiptVersion {
		return errNoReceipt
	}
	salt := receipt[1 : 1+saltSize]
	seal, err := l.sealOf(salt)
	if err != nil {
		return err
	}
	text, err := seal.Open(nil, make([]byte, seal.NonceSize()), receipt[1+saltSize:], receipt[:1])
	if err != nil {
		return errNoReceipt
	}
	at, hits, err := l.decodeHits(text)
	if err != nil {
		return err
	}
	var kept time.Duration
	for _, hit := range hits {
		ladder := hit.On.Config().Ladder
		kept = max(kept, ladder.At(ladder.Len()-1).Keep)
	}
	if l.counter.Config().Now().Sub(at) > kept {
		return ErrReceiptExpired
	}
	per := min(kept, tiers.MaxWindow)
	once, err := l.onLadder(tiers.For(per))
	if err != nil {
		return err
	}
	refunds := counter.Key{Event: hits[0].Key.Event, Feature: receiptPrefix + base64.RawURLEncoding.EncodeToString(salt)}
	v, err := once.Take(ctx, refunds, 1, counter.Limits{{Max: 1, Per: per}})
	switch {
	case err != nil:
		return err
	case !v.Allowed:
		return ErrReceiptUsed
	}
	defer l.turns.Freed(func(key counter.Key) bool {
		return slices.ContainsFunc(hits, func(hit counter.Ask) bool { return hit.Key == key && !hit.Soft })
	})
	return inner(l.counter).GiveBack(ctx, at.UnixNano(), hits...)
}

// sealOf returns the seal of the receipt with this salt.
func (l *Limiter) sealOf(salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, l.receipts, string(salt), 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// onLadder returns the Counter of the Limiter on ladder alone.
func (l *Limiter) onLadder(ladder tiers.Ladder) (*counter.Counter, error) {
	l.replacing.Lock()
	defer l.replacing.Unlock()
	return l.maker.store.on(ladder, nil)
}

// encodeHits encodes hits with the label at, of one event. Numbers are varints, and
// texts have their lengths before them.
func encodeHits(at time.Time, hits []counter.Ask) []byte {
	appendText := func(to []byte, text string) []byte {
		return append(binary.AppendUvarint(to, uint64(len(text))), text...)
	}
	text := binary.AppendVarint(nil, at.UnixNano())
	text = appendText(text, hits[0].Key.Event)
	for _, hit := range hits {
		soft := byte(0)
		if hit.Soft && !hit.Shared {
			soft = 1
		}
		text = binary.AppendUvarint(append(text, soft), uint64(hit.N))
		text = appendText(appendText(text, hit.On.Config().Ladder.String()), hit.Key.Feature)
	}
	return text
}

// decodeHits reads what encodeHits writes.
func (l *Limiter) decodeHits(text []byte) (at time.Time, hits []counter.Ask, err error) {
	sound := true
	number := func() (n uint64) {
		n, size := binary.Uvarint(text)
		sound = sound && size > 0
		text = text[max(0, size):]
		return n
	}
	part := func() string {
		size := min(number(), uint64(len(text)))
		part := string(text[:size])
		text = text[size:]
		return part
	}
	label, size := binary.Varint(text)
	if size <= 0 {
		return at, nil, errNoReceipt
	}
	text = text[size:]
	event := part()
	for len(text) > 0 && sound {
		hit := counter.Ask{Soft: text[0] == 1}
		text = text[1:]
		hit.N = int64(number())
		ladder, err := tiers.Parse(part())
		if err != nil {
			return at, nil, errNoReceipt
		}
		if hit.On, err = l.onLadder(ladder); err != nil {
			return at, nil, err
		}
		hit.Key = counter.Key{Event: event, Feature: part()}
		hits = append(hits, hit)
	}
	if !sound || len(hits) == 0 {
		return at, nil, errNoReceipt
	}
	return time.Unix(0, label), hits, nil
}

func errNoReceiptKey(method string) error {
	return fmt.Errorf("limiter: %s: Config.ReceiptKey is empty, want at least 16 random bytes, the same in all processes", method)
}
