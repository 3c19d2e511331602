package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/cmd/internal/clitest"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
)

// A key counted with a secret is found with the same secret.
func TestInspectWithSecret(t *testing.T) {
	for kind, url := range clitest.Stores(t) {
		t.Run(kind, func(t *testing.T) {
			name, err := stores.Parse(url)
			require.NoError(t, err)
			store, err := stores.Open(name, 5*time.Second)
			require.NoError(t, err)
			defer store.Close()
			c, err := counter.New(store.Store, counter.Config{Secret: []byte("pepper"), Patience: 5 * time.Second})
			require.NoError(t, err)
			require.NoError(t, c.Add(t.Context(), counter.Key{Event: "signup", Feature: "203.0.113.9"}, 1234))
			cmd, stderr := clitest.Process(t, "abacus", "inspect", "--store", url, "--secret-env", "SALT", "signup", "203.0.113.9")
			cmd.Env = append(cmd.Env, "SALT=pepper")
			out, err := cmd.Output()
			require.NoError(t, err, stderr)
			require.Regexp(t, `(?m)^1d +1,234$`, string(out))
			require.NotContains(t, string(out), "pepper")
		})
	}
}
