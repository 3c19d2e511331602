package memcache

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// silence is the state of a server that has answered nothing since an addition
// was sent, whose call has returned by now. Further additions might wait in a
// socket until the server goes on, and then be counted for nobody. So no
// additions are sent during a silence: calls that add wait, for their own time,
// until the server answers. A single connection asks, with a request that
// changes nothing.
type silence struct {
	on atomic.Bool // over is not nil

	mu      sync.Mutex
	over    chan struct{} // closed at the end of the silence; nil if the server is not silent
	waiting int           // calls that wait
	probing bool
}

func (s *silence) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = make(chan struct{})
		s.on.Store(true)
	}
}

func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		close(s.over)
		s.over = nil
		s.on.Store(false)
	}
}

// await returns a channel that is closed at the end of the silence, nil if
// there is none. After a channel, the caller must call s.leave.
func (p *peer) await() <-chan struct{} {
	s := &p.silence
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		return nil
	}
	s.waiting++
	if !s.probing {
		s.probing = true
		go p.probe()
	}
	return s.over
}

func (s *silence) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
}

// probePause is the time from a failed probe to the next.
const probePause = 10 * time.Millisecond

// probe asks the server for its version until the server answers or no call
// waits. Each probe has a new connection, since old connections may lead
// nowhere. A server that refuses connections is not silent: calls find the
// refusal by themselves.
func (p *peer) probe() {
	for {
		err := p.ping()
		var ne net.Error
		if err == nil || !errors.As(err, &ne) || !ne.Timeout() {
			p.silence.end()
		}
		if !p.silence.probeAgain() {
			return
		}
		time.Sleep(probePause)
	}
}

func (s *silence) probeAgain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probing = s.over != nil && s.waiting > 0
	return s.probing
}

func (p *peer) ping() (err error) {
	l := newLink(p, min(p.timeout, time.Second))
	defer func() { p.giveBack(l) }()
	if err := l.ready(); err != nil {
		return err
	}
	if err := l.client.Ping(); err != nil {
		l.drop()
		return err
	}
	l.timeout = p.timeout
	return nil
}
