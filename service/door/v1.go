package door

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/feature"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/service/callers"
	"github.com/abacus-go/abacus/service/config"
)

// The bounds of a request.
const (
	maxBody     = 64 << 10
	maxFeatures = counter.MaxKeys
	maxFeature  = 4 << 10 // bytes of a feature
)

// ask asks the Limiter. Without an answer there is nothing to say but that it is done.
func (s *server) ask(r *http.Request, verb config.Verb, q *question) (any, error) {
	ctx := r.Context()
	var v limiter.Verdict
	var err error
	switch verb {
	case config.Take:
		v, err = s.Limiter.AllowN(ctx, q.Event, q.n(), q.features...)
	case config.Peek:
		v, err = s.Limiter.Peek(ctx, q.Event, q.n(), q.features...)
	case config.Charge:
		v, err = s.Limiter.Charge(ctx, q.Event, q.n(), q.features...)
	case config.Usage:
		usage, err := s.Limiter.Usage(ctx, q.Event, q.features...)
		return usageOf(usage), err
	case config.Forget:
		return nil, s.Limiter.Forget(ctx, q.Event, q.features...)
	case config.Erase:
		return nil, s.Erase(ctx, q.Features, q.features)
	default:
		receipt, err := base64.RawURLEncoding.DecodeString(q.receipt)
		if err != nil {
			return nil, limiter.ErrReceipt
		}
		return nil, s.Limiter.RefundReceipt(ctx, receipt)
	}
	if err != nil {
		return nil, err
	}
	return s.answerOf(q, &v), nil
}

// question is a request for any verb.
type question struct {
	Event    string   `json:"event"`
	Features []string `json:"features"` // each kind:value
	N        *int64   `json:"n"`
	Receipt  any      `json:"receipt"` // whether a receipt is asked for, or the receipt of a refund

	features []feature.Feature
	receipt  string
}

func (q *question) n() int64 {
	if q.N == nil {
		return 1
	}
	return *q.N
}

// mistake is an error of the client, with the status of the answer.
type mistake struct {
	error
	status int
}

func mistakef(status int, format string, args ...any) error {
	return mistake{fmt.Errorf(format, args...), status}
}

// call answers a program.
func (s *server) call(w http.ResponseWriter, r *http.Request, verb config.Verb, grants callers.Grants) {
	if verb == "" {
		problem(w, http.StatusNotFound, "There is no such verb: see /openapi.yaml.")
		return
	}
	var q question
	err := may(grants, verb, "")
	if err == nil && verb == config.Status {
		s.Status.ServeHTTP(w, r)
		return
	}
	if err == nil {
		err = q.read(w, r)
	}
	if err == nil {
		err = q.check(verb)
	}
	if err == nil {
		err = s.known(grants, verb, &q)
	}
	var answer any
	if err == nil {
		answer, err = s.ask(r, verb, &q)
	}
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case err != nil:
		fail(w, err)
	case answer == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // an error is a client that hung up
	}
}

// may returns an error unless the client may use the verb with the event.
func may(grants callers.Grants, verb config.Verb, event string) error {
	if status, reason := grants.Refuse(verb, event); reason != nil {
		return mistake{reason, status}
	}
	return nil
}

// known returns an error unless the client may use the event, and there is one.
func (s *server) known(grants callers.Grants, verb config.Verb, q *question) error {
	if (verb == config.Refund || q.Receipt == true) && !s.Receipts {
		return mistakef(http.StatusBadRequest, "there are no receipts, want receipt_key_file in the configuration")
	}
	if verb == config.Refund || verb == config.Erase {
		return nil // the event is sealed in the receipt, or all of them are meant
	}
	if err := may(grants, verb, q.Event); err != nil {
		return err
	}
	if s.Limiter == nil || !s.Limiter.Has(q.Event) {
		return mistakef(http.StatusNotFound, "no rule has the event %q", q.Event)
	}
	return nil
}

// read reads the body. A web page cannot send this Content-Type to another site without
// its consent.
func (q *question) read(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return mistakef(http.StatusMethodNotAllowed, "the method is %s, want POST", r.Method)
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return mistakef(http.StatusUnsupportedMediaType, "want Content-Type: application/json")
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return mistakef(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", maxBody)
	case err != nil:
		return mistakef(http.StatusBadRequest, "the body did not arrive in full")
	case !utf8.Valid(data):
		return mistakef(http.StatusBadRequest, "the body is not UTF-8")
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(q); err != nil {
		var typed *json.UnmarshalTypeError
		if errors.As(err, &typed) {
			return mistakef(http.StatusBadRequest, "the field %q is a JSON %s, which is wrong: see /openapi.yaml", typed.Field, typed.Value)
		}
		return mistakef(http.StatusBadRequest, "the body is no JSON object as in /openapi.yaml: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := in.Token(); err != io.EOF {
		return mistakef(http.StatusBadRequest, "the body goes on after its JSON object")
	}
	return nil
}

// check checks the fields of q for a verb.
func (q *question) check(verb config.Verb) error {
	bad := func(format string, args ...any) error { return mistakef(http.StatusBadRequest, format, args...) }
	counts := verb == config.Take || verb == config.Charge
	_, asks := q.Receipt.(bool)
	if text, is := q.Receipt.(string); verb == config.Refund {
		if !is || q.Event != "" || q.Features != nil || q.N != nil {
			return bad("want the field receipt as text, and no other field")
		}
		q.receipt = text
		return nil
	}
	switch {
	case q.Receipt != nil && !(counts && asks):
		return bad("the field receipt is true or false, and for take and charge alone")
	case verb == config.Erase && q.Event != "":
		return bad("the features are erased of all events, want no field event")
	case verb != config.Erase && (q.Event == "" || len(q.Event) > maxFeature):
		return bad("the field event is empty or longer than %d bytes", maxFeature)
	case q.N != nil && verb != config.Peek && !counts:
		return bad("the field n is for take, peek and charge alone")
	case q.n() < -counter.MaxCount || q.n() > counter.MaxCount || q.n() < 0 && verb != config.Charge || q.n() == 0 && verb != config.Peek:
		return bad("the field n is %d, which is out of range for %s", q.n(), verb)
	case q.n() < 0 && q.Receipt == true:
		return bad("an n below 0 has no receipt")
	case len(q.Features) == 0 || len(q.Features) > maxFeatures:
		return bad("the field features has %d entries, want 1 to %d", len(q.Features), maxFeatures)
	}
	for i, text := range q.Features {
		kind, value, _ := strings.Cut(text, ":")
		f := feature.New(kind, value)
		if len(text) > maxFeature || !feature.IsKind(kind) || value == "" || f.Err() != nil {
			return bad("features[%d] is no feature: want kind:value such as ip:192.0.2.7, of at most %d bytes", i, maxFeature)
		}
		q.features = append(q.features, f)
	}
	return nil
}

// fail answers with a problem. The text of an error of the store may name servers, and
// is not sent.
func fail(w http.ResponseWriter, err error) {
	var m mistake
	switch {
	case errors.As(err, &m):
		if m.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		problem(w, m.status, "%s.", m.error)
	case errors.Is(err, limiter.ErrReceiptUsed):
		problem(w, http.StatusConflict, "The hits of the receipt were given back before.")
	case errors.Is(err, limiter.ErrReceiptExpired):
		problem(w, http.StatusGone, "The hits of the receipt have left all windows.")
	case errors.Is(err, limiter.ErrReceipt):
		problem(w, http.StatusBadRequest, "The receipt is none of this service.")
	case errors.Is(err, counter.ErrStore):
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "The store does not answer.")
	default:
		problem(w, http.StatusBadRequest, "There is no rule for these features, or the request was cut off.")
	}
}

// answer is the answer of take, peek and charge.
type answer struct {
	Allowed    bool     `json:"allowed"`
	Outcome    string   `json:"outcome"`
	N          int64    `json:"n"`
	RetryAfter *float64 `json:"retry_after"` // null: never
	Missing    string   `json:"missing,omitempty"`
	Degraded   bool     `json:"degraded,omitempty"`
	Limits     []state  `json:"limits"`
	Receipt    string   `json:"receipt,omitempty"`
}

// state is the state of a feature under a limit.
type state struct {
	Feature    int      `json:"feature"` // index in the request; -1: of all requests without the feature
	Kind       string   `json:"kind"`
	Limit      string   `json:"limit"`
	Remaining  int64    `json:"remaining"`
	RetryAfter *float64 `json:"retry_after"`
	ResetAfter *float64 `json:"reset_after"`
}

// secondsOf returns whole milliseconds, rounded up, in seconds; nil for never.
func secondsOf(d time.Duration) *float64 {
	if d == counter.Never {
		return nil
	}
	s := math.Ceil(float64(d)/float64(time.Millisecond)) / 1e3
	return &s
}

func (s *server) answerOf(q *question, v *limiter.Verdict) answer {
	a := answer{
		Allowed: v.Allowed, Outcome: v.Outcome().String(), N: v.N(), RetryAfter: secondsOf(v.RetryAfter),
		Missing: v.Missing, Degraded: v.Degraded != nil, Limits: []state{},
	}
	for _, of := range v.All() {
		kind, _, _ := strings.Cut(of.Key.Feature, ":")
		a.Limits = append(a.Limits, state{of.Ask, kind, of.Limit.String(), of.Remaining, secondsOf(of.RetryAfter), secondsOf(of.ResetAfter)})
	}
	if q.Receipt == true {
		// Hits that were counted in this process while the store is away have none.
		receipt, _ := s.Limiter.Receipt(v)
		a.Receipt = base64.RawURLEncoding.EncodeToString(receipt)
	}
	return a
}

func usageOf(all []limiter.Usage) any {
	features := []any{}
	for _, u := range all {
		limits := []any{}
		for _, l := range u.Limits {
			limits = append(limits, map[string]any{"limit": l.Limit.String(), "count": l.Count.High, "remaining": l.Remaining, "retry_after": secondsOf(l.RetryAfter)})
		}
		features = append(features, map[string]any{"kind": u.Kind, "banned": secondsOf(u.Banned), "limits": limits})
	}
	return map[string]any{"usage": features}
}
