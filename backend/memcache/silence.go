package memcache

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// silence is the state of a server that has answered nothing since an addition
// was sent whose call has given up by now. Whatever is sent to it may lie in a
// socket until the server goes on and is then counted for nobody, so no
// additions are sent meanwhile: their calls wait, for their own time, until the
// server speaks. One connection finds that out with a request that changes
// nothing.
type silence struct {
	on atomic.Bool // over is not nil

	mu      sync.Mutex
	over    chan struct{} // closed when the server has spoken; nil if it is not silent
	waiting int           // calls
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

// await returns what is closed when the silence is over, nil if there is none.
// Whoever got it must call s.leave.
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

// probePause stands between a probe that failed and the next.
const probePause = 10 * time.Millisecond

// probe asks the server for its version, on new connections, since old ones may
// lead nowhere, until it answers or nobody waits any more. A server that is
// not there at all is none that is silent: calls find that out by themselves.
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
