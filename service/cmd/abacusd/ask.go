package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
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

// Validate finds mistakes on the command line.
func (c *askCmd) Validate() error {
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the address is %q, want a URL such as http://localhost:8080", c.URL)
	}
	return nil
}

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
		Outcome, Missing, Detail string
		Allowed                  bool
		RetryAfter               *float64 `json:"retry_after"`
		Limits                   []struct {
			Kind, Limit string
			Remaining   int64
			RetryAfter  *float64 `json:"retry_after"`
		}
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&v); err != nil || answer.StatusCode != http.StatusOK || v.Outcome == "" {
		after, _ := strconv.ParseFloat(answer.Header.Get("Retry-After"), 64)
		return fmt.Errorf("%s: %s%s", answer.Status, cmp.Or(v.Detail, "the answer is none of abacusd's; is a proxy at this address?"), again(&after))
	}
	fmt.Printf("%s: %s%s\n", c.Event, strings.TrimSpace(v.Outcome+" "+v.Missing), again(v.RetryAfter))
	for _, l := range v.Limits {
		fmt.Printf("  %s %s: %d left%s\n", l.Kind, l.Limit, l.Remaining, again(l.RetryAfter))
	}
	if !v.Allowed {
		os.Exit(exitDenied)
	}
	return nil
}

// again says when a call has room, after a time in seconds; nil is never.
func again(wait *float64) string {
	switch {
	case wait == nil:
		return ", and no wait will do"
	case *wait > 0:
		return fmt.Sprintf(", again in %gs", *wait)
	}
	return ""
}
