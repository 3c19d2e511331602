package callers

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	leastToken = 16
	maxTokens  = 64 << 10 // bytes of a file
	rereadTime = time.Second
)

// tokens are the tokens of a file: one in each line, so that a new one is known before
// the old one goes. The file is read again with a request, at most once a second. While
// it is missing or bad there is no token.
type tokens struct {
	file string

	mu   sync.Mutex
	at   time.Time // of the last read
	sums [][sha256.Size]byte
	told bool // that the file is bad
}

// has reports whether token is one of t, in a time that does not depend on how much of
// the token is right.
func (t *tokens) has(token string, now time.Time) bool {
	if token == "" {
		return false
	}
	sum, found := sha256.Sum256([]byte(token)), 0
	for _, known := range t.current(now) {
		found |= subtle.ConstantTimeCompare(sum[:], known[:])
	}
	return found == 1
}

func (t *tokens) current(now time.Time) [][sha256.Size]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if age := now.Sub(t.at); age >= rereadTime || age < 0 {
		t.at = now
		if err := t.read(); err == nil {
			t.told = false
		} else if t.sums = nil; !t.told {
			t.told = true
			slog.Warn("abacusd: the token file is refused, and its callers are too", "error", err)
		}
	}
	return t.sums
}

// read reads the file; after an error the tokens are as before.
func (t *tokens) read() error {
	data, err := os.ReadFile(t.file)
	if err == nil && len(data) > maxTokens {
		err = fmt.Errorf("%s: the file has more than %d bytes", t.file, maxTokens)
	}
	if err != nil {
		return err
	}
	var sums [][sha256.Size]byte
	for i, line := range bytes.Split(data, []byte("\n")) {
		token := bytes.TrimSpace(line)
		switch {
		case len(token) == 0:
			continue
		case len(token) < leastToken:
			return fmt.Errorf("%s:%d: the token has %d bytes, want at least %d random ones", t.file, i+1, len(token), leastToken)
		case bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
			return fmt.Errorf("%s:%d: the token has a byte that no header can hold, want printable ASCII without spaces", t.file, i+1)
		}
		sums = append(sums, sha256.Sum256(token))
	}
	if len(sums) == 0 {
		return fmt.Errorf("%s: the file has no token", t.file)
	}
	t.sums = sums
	return nil
}
