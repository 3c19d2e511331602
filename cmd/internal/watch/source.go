package watch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/cmd/internal/stores"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/metrics/tally"
	"github.com/abacus-go/abacus/rules"
)

const (
	// patience is the longest time for an answer of a store or a service.
	patience = 1500 * time.Millisecond

	// rulesEvery is the time between two reads of the file of rules.
	rulesEvery = time.Second

	// maxStatus bounds the answer of a service, in bytes, and maxHead its fields.
	maxStatus = 1 << 20
	maxHead   = 64 << 10

	// maxTotal bounds a number of decisions that is believed.
	maxTotal = 1 << 53
)

// Config is a store to watch, with the rules of the programs that count there.
type Config struct {
	Store   *stores.Opened // of OpenReadOnly
	Counter counter.Config // of the programs
	Limiter limiter.Config // of the programs, without rules
	Rules   *rules.Set     // of Load
	File    string         // the name of the file of Rules
	Status  *url.URL       // of a service's tally.Status; nil: not known
}

// Source is the subject of the watch. All methods are safe for many goroutines, and
// write nothing to a store.
type Source struct {
	store  string // for people
	file   string // of the rules; empty: there is no file
	status string // the address of the service, for people; empty: none

	kind    stores.Kind
	bits    [2]int                                 // of the networks of IPv4 and IPv6 addresses
	ask     func(context.Context) (*status, error) // nil: the decisions are not known
	servers func(context.Context) []stores.Look    // nil: the store is in this process

	mu    sync.Mutex
	lim   *limiter.Limiter
	watch *rules.Watcher // nil without a file
}

// limiter is a limiter by the rules of now.
func (s *Source) limiter() *limiter.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lim
}

// rulesFault is the fault of the file of rules; nil after a good read.
func (s *Source) rulesFault() error {
	if s.watch == nil {
		return nil
	}
	return s.watch.Stats().Err
}

// OfLimiter is a limiter of this process as a source, with its numbers.
func OfLimiter(lim *limiter.Limiter, numbers *tally.Tally) *Source {
	page := tally.Status(lim, numbers)
	return &Source{store: "the memory of this program", status: "this program", bits: [2]int{32, 64}, lim: lim, ask: func(ctx context.Context) (*status, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Accept", "application/json")
		answer := &written{head: http.Header{}}
		page.ServeHTTP(answer, r)
		return readStatus(answer)
	}}
}

// written is an answer in memory.
type written struct {
	bytes.Buffer
	head http.Header
}

func (w *written) Header() http.Header { return w.head }
func (w *written) WriteHeader(int)     {}

// OfStore is a store, a file of rules and perhaps a service as a source, until ctx
// is done.
func OfStore(ctx context.Context, w *Config) (*Source, error) {
	count, err := counter.New(w.Store.Store, w.Counter)
	if err != nil {
		return nil, err
	}
	// Rules under FailLocal are rules of a limiter with a local counter only.
	here, err := counter.New(memory.New(memory.Config{}), counter.Config{Skew: count.Config().Skew + limiter.DefaultDecideWithin, Now: w.Counter.Now})
	if err != nil {
		return nil, err
	}
	make := func(set *rules.Set) (*limiter.Limiter, error) {
		cfg := w.Limiter
		cfg.Rules, cfg.Local = set.Rules, here
		return limiter.New(count, cfg)
	}
	s := &Source{store: w.Store.Name.String(), file: w.File, kind: w.Store.Name.Kind, servers: w.Store.Look}
	s.bits = [2]int{cmp.Or(w.Limiter.Forms.IPv4Bits, 32), cmp.Or(w.Limiter.Forms.IPv6Bits, 64)}
	if s.lim, err = make(w.Rules); err != nil {
		return nil, err
	}
	s.watch, err = rules.Watch(w.Rules, rules.WatchConfig{Every: rulesEvery, Apply: func(set *rules.Set) error {
		// A limiter that counts goes on with the former ladder of a rule; what it
		// cannot change to without a loss is begun anew, as a restarted program does.
		lim := s.limiter()
		if lim.Replace(set.Rules...) == nil {
			return nil
		}
		fresh, err := make(set)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.lim = fresh
		s.mu.Unlock()
		return lim.Close(ctx)
	}})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, s.watch.Close)
	if w.Status != nil {
		s.status, s.ask = shownURL(w.Status), askService(w.Status)
	}
	return s, nil
}

// shownURL is u without what may be secret: the user, the password and the query.
func shownURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// askService returns a function that gets the status of a service. No redirect to
// another host is followed, and no error has the query or the password of the URL.
func askService(u *url.URL) func(context.Context) (*status, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = maxHead
	client := &http.Client{Transport: transport, Timeout: patience, CheckRedirect: func(to *http.Request, via []*http.Request) error {
		if to.URL.Host != u.Host || to.URL.Scheme != u.Scheme {
			return fmt.Errorf("a redirect to %s://%s, which is not followed: want an answer of %s", to.URL.Scheme, to.URL.Host, u.Host)
		}
		if len(via) > 3 {
			return errors.New("more than 3 redirects, want an answer")
		}
		return nil
	}}
	return func(ctx context.Context) (*status, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, errors.New("the URL cannot be asked")
		}
		r.Header.Set("Accept", "application/json")
		answer, err := client.Do(r)
		var hidden *url.Error
		switch {
		case errors.As(err, &hidden) && hidden.Timeout():
			return nil, fmt.Errorf("no answer within %s", patience)
		case errors.As(err, &hidden):
			return nil, hidden.Err
		case err != nil:
			return nil, err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the answer is %d %s, want 200 and the JSON of tally.Status", answer.StatusCode, http.StatusText(answer.StatusCode))
		}
		st, err := readStatus(answer.Body)
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no whole answer within %s", patience)
		}
		return st, err
	}
}

// status is the JSON of tally.Status.
type status struct {
	At        time.Time    `json:"at"`
	Rules     []statusRule `json:"rules"`
	MoreRules int          `json:"more_rules"`
	Tallied   bool         `json:"tallied"`
	tally.Snapshot
	Skew    time.Duration `json:"skew"`
	Limiter limiter.Stats `json:"limiter"`
	Counter counter.Stats `json:"counter"`

	totals map[limiter.Outcome]int64
}

type statusRule struct {
	Event  string         `json:"event"`
	Kind   string         `json:"kind"`
	Limits counter.Limits `json:"limits"`
	Ladder string         `json:"ladder"`
	Soft   bool           `json:"soft"`
}

// readStatus reads an answer, which anybody may have written.
func readStatus(from io.Reader) (*status, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxStatus+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer ends early: %w", err)
	case len(data) > maxStatus:
		return nil, fmt.Errorf("the answer has more than %d bytes, want the JSON of tally.Status", maxStatus)
	}
	st := &status{totals: map[limiter.Outcome]int64{}}
	if err := json.Unmarshal(data, st); err != nil {
		return nil, fmt.Errorf("the answer is not the JSON of tally.Status: %w", err)
	}
	if st.At.IsZero() || st.Rules == nil {
		return nil, errors.New("the answer is not the JSON of tally.Status: it has no at and no rules")
	}
	for _, d := range st.Decisions {
		if st.totals[d.Outcome] += d.Count; d.Count < 0 || d.Count > maxTotal || st.totals[d.Outcome] > maxTotal {
			return nil, fmt.Errorf("the answer has %d decisions of an outcome, want 0 to %d", d.Count, int64(maxTotal))
		}
	}
	return st, nil
}
