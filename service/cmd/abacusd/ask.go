package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// askCmd is "abacusd ask".
type askCmd struct {
	URL       string   `arg:"" help:"Address of the service, such as http://localhost:8080."`
	Event     string   `arg:"" help:"Event of a rule."`
	Features  []string `arg:"" name:"kind:value" help:"Features, such as ip:192.0.2.7."`
	N         int64    `default:"1" help:"Hits."`
	Peek      bool     `help:"Count nothing."`
	TokenFile string   `help:"File with the token of a caller in its first line."`
}

// Run asks, and is errDenied if the event is denied.
func (c *askCmd) Run(e env) error {
	verb := "take"
	if c.Peek {
		verb = "peek"
	}
	body, err := json.Marshal(map[string]any{"event": c.Event, "features": c.Features, "n": c.N})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(e.ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/v1/"+verb, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w%w", err, errUsage)
	}
	r.Header.Set("Content-Type", "application/json")
	if c.TokenFile != "" {
		data, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return err
		}
		token, _, _ := strings.Cut(string(data), "\n")
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		var p struct{ Detail string }
		_ = json.Unmarshal(said, &p) // without a detail the status says it
		return errors.New(strings.TrimSpace(answer.Status + ": " + p.Detail))
	}
	return c.print(e, said)
}

// print prints the answer of the service.
func (c *askCmd) print(e env, said []byte) error {
	var v struct {
		Allowed    bool
		Outcome    string
		RetryAfter *float64 `json:"retry_after"`
		Limits     []struct {
			Kind, Limit string
			Remaining   int64
		}
	}
	if err := json.Unmarshal(said, &v); err != nil {
		return fmt.Errorf("the answer is no JSON of abacusd: %w", err)
	}
	line := v.Outcome
	if v.RetryAfter == nil {
		line += ", and no wait will do"
	} else if !v.Allowed {
		line += fmt.Sprintf(", again in %gs", *v.RetryAfter)
	}
	fmt.Fprintln(e.stdout, line)
	for _, l := range v.Limits {
		fmt.Fprintf(e.stdout, "  %s %s: %d left\n", l.Kind, l.Limit, l.Remaining)
	}
	if !v.Allowed {
		return errDenied
	}
	return nil
}
