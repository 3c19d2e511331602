package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	// writing is the longest time that a client may take for an event.
	writing = 5 * time.Second

	// silence is the longest time without an event or a comment. A write tells the
	// server that the client has gone.
	silence = 15 * time.Second
)

// stream sends server-sent events to one client.
type stream struct {
	to   http.ResponseWriter
	rc   *http.ResponseController
	last time.Time
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	return &stream{to: w, rc: http.NewResponseController(w)}
}

// send sends a value as JSON. After an error the client is gone.
func (s *stream) send(event string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", event, data))
}

// alive sends a comment if nothing was sent for long.
func (s *stream) alive() error {
	if time.Since(s.last) < silence {
		return nil
	}
	return s.write(": alive\n\n")
}

func (s *stream) write(text string) error {
	s.last = time.Now()
	if err := s.rc.SetWriteDeadline(s.last.Add(writing)); err != nil {
		return err
	}
	if _, err := s.to.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}
