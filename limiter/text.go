package limiter

import (
	"fmt"
	"slices"

	"github.com/abacus-go/abacus/internal/words"
)

// constants are the values of a type, by their text: names[i] is the text of
// the constant i.
type constants struct {
	kind  string
	names []string
}

var (
	onFailures = constants{"OnFailure", []string{"fail-closed", "fail-open", "fail-local"}}
	ifMissings = constants{"IfMissing", []string{"deny", "skip", "share"}}
	outcomes   = constants{"Outcome", []string{"over-limit", "missing", "failed-closed", "admitted", "skipped", "failed-open", "local-over-limit", "local-admitted", "banned", "denied", "exempt", "forgotten"}}
)

// text is the text of i. A number without a constant can be made, and shown.
func (c *constants) text(i uint8) string {
	if int(i) < len(c.names) {
		return c.names[i]
	}
	return fmt.Sprintf("%s(%d)", c.kind, i)
}

func (c *constants) marshal(i uint8) ([]byte, error) {
	if int(i) >= len(c.names) {
		return nil, fmt.Errorf("limiter: %s is %d, want 0 to %d", c.kind, i, len(c.names)-1)
	}
	return []byte(c.names[i]), nil
}

func (c *constants) unmarshal(text []byte) (uint8, error) {
	i := slices.Index(c.names, string(text))
	if i < 0 {
		return 0, fmt.Errorf("limiter: %s is %q, want one of %s", c.kind, text, words.Quoted(c.names))
	}
	return uint8(i), nil
}

// String is "fail-closed", "fail-open" or "fail-local".
func (p OnFailure) String() string { return onFailures.text(uint8(p)) }

// MarshalText returns String. A number without a constant is an error.
func (p OnFailure) MarshalText() ([]byte, error) { return onFailures.marshal(uint8(p)) }

// UnmarshalText reads what String writes. After an error p is unchanged.
func (p *OnFailure) UnmarshalText(text []byte) error {
	i, err := onFailures.unmarshal(text)
	if err == nil {
		*p = OnFailure(i)
	}
	return err
}

// String is "deny", "skip" or "share".
func (p IfMissing) String() string { return ifMissings.text(uint8(p)) }

// MarshalText returns String. A number without a constant is an error.
func (p IfMissing) MarshalText() ([]byte, error) { return ifMissings.marshal(uint8(p)) }

// UnmarshalText reads what String writes. After an error p is unchanged.
func (p *IfMissing) UnmarshalText(text []byte) error {
	i, err := ifMissings.unmarshal(text)
	if err == nil {
		*p = IfMissing(i)
	}
	return err
}

// String is a label for a metric: "over-limit", "missing",
// "failed-closed", "admitted", "skipped", "failed-open", "local-over-limit",
// "local-admitted", "banned", "denied", "exempt", "forgotten".
func (o Outcome) String() string { return outcomes.text(uint8(o)) }

// MarshalText returns String. A number without a constant is an error.
func (o Outcome) MarshalText() ([]byte, error) { return outcomes.marshal(uint8(o)) }

// UnmarshalText reads what String writes. After an error o is unchanged.
func (o *Outcome) UnmarshalText(text []byte) error {
	i, err := outcomes.unmarshal(text)
	if err == nil {
		*o = Outcome(i)
	}
	return err
}
