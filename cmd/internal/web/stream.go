package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// writing is the longest time that a client may take for an event.
	writing = 5 * time.Second

	// silence is the longest time without an event or a comment. A write tells the
	// server that the client has gone.
	silence = 15 * time.Second

	// maxStreams bounds the streams at once. A browser has six connections to a host:
	// two are left for pages and for presses.
	maxStreams = 4
)

// errTurn is the cause of the end of a stream that made room for another.
var errTurn = errors.New("another page has its turn")

// streams are the streams under way. Beyond maxStreams a stream ends the oldest,
// whose page comes back a moment later.
type streams struct {
	ctx context.Context // ends all

	mu   sync.Mutex
	open []*Stream // the oldest first
}

// Stream sends server-sent events to one client.
type Stream struct {
	all  *streams
	ctx  context.Context
	end  context.CancelCauseFunc
	to   http.ResponseWriter
	rc   *http.ResponseController
	last time.Time
}

// Begin begins a stream, unless a page of another site asks. The caller ends the
// stream by Close.
func (s *Site) Begin(w http.ResponseWriter, r *http.Request) (out *Stream, is bool) {
	all := &s.streams
	asked := &http.Request{Method: http.MethodPost, Header: r.Header, Host: r.Host, URL: r.URL} // a GET passes any check
	if err := http.NewCrossOriginProtection().Check(asked); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return nil, false
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out = &Stream{all: all, to: w, rc: http.NewResponseController(w)}
	out.ctx, out.end = context.WithCancelCause(r.Context())
	forget := context.AfterFunc(all.ctx, func() { out.end(nil) })
	context.AfterFunc(out.ctx, func() { forget() })
	all.mu.Lock()
	defer all.mu.Unlock()
	all.open = append(all.open, out)
	if len(all.open) > maxStreams {
		all.open[0].end(errTurn)
		all.open = all.open[1:]
	}
	return out, true
}

// Context is done when the stream has ended.
func (s *Stream) Context() context.Context { return s.ctx }

// End lets the stream end, without a last event.
func (s *Stream) End() { s.end(nil) }

// Close ends a stream. The last event of one that made room is "again".
func (s *Stream) Close() {
	all := s.all
	all.mu.Lock()
	all.open = slices.DeleteFunc(all.open, func(other *Stream) bool { return other == s })
	all.mu.Unlock()
	if context.Cause(s.ctx) == errTurn {
		_ = s.Send("again", nil) // without it the page takes the end for a failure, and comes back too
	}
	s.end(nil)
}

// Send sends a value as JSON. After an error the client is gone.
func (s *Stream) Send(event string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", event, data))
}

// Alive sends a comment if nothing was sent for long.
func (s *Stream) Alive() error {
	if time.Since(s.last) < silence {
		return nil
	}
	return s.write(": alive\n\n")
}

func (s *Stream) write(text string) error {
	s.last = time.Now()
	if err := s.rc.SetWriteDeadline(s.last.Add(writing)); err != nil {
		return err
	}
	if _, err := s.to.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}
