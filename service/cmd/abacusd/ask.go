package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// askCmd is "abacusd ask".
type askCmd struct {
	URL      string   `arg:"" help:"Address of the service, such as http://localhost:8080."`
	Event    string   `arg:"" help:"Event of a rule."`
	Features []string `arg:"" name:"kind:value" help:"Features, such as ip:192.0.2.7."`
	N        int64    `default:"1" help:"Hits."`
	Peek     bool     `help:"Count nothing."`
	Token    string   `env:"ABACUSD_TOKEN" help:"Token of a caller; $$ABACUSD_TOKEN holds it out of sight of other users."`
}

// exitDenied is the exit status after a denial.
const exitDenied = 3

// Run asks, and ends the process if the event is denied.
func (c *askCmd) Run(ctx context.Context) error {
	verb := "take"
	if c.Peek {
		verb = "peek"
	}
	body, err := json.Marshal(map[string]any{"event": c.Event, "features": c.Features, "n": c.N})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+"/v1/"+verb, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	answer, err := (&http.Client{Timeout: 10 * time.Second}).Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var v struct {
		Outcome, Detail string
		Allowed         bool
		RetryAfter      *float64 `json:"retry_after"`
		Limits          []struct {
			Kind, Limit string
			Remaining   int64
		}
	}
	switch err := json.NewDecoder(answer.Body).Decode(&v); {
	case err != nil || answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", answer.Status, v.Detail)
	case v.RetryAfter == nil:
		v.Outcome += ", and no wait will do"
	case !v.Allowed:
		v.Outcome += fmt.Sprintf(", again in %gs", *v.RetryAfter)
	}
	fmt.Println(v.Outcome)
	for _, l := range v.Limits {
		fmt.Printf("  %s %s: %d left\n", l.Kind, l.Limit, l.Remaining)
	}
	if !v.Allowed {
		os.Exit(exitDenied)
	}
	return nil
}
