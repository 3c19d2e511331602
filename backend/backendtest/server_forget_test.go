package backendtest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/abacus-go/abacus/backend"
)

// forgotten is a server's memory of a Forget.
type forgotten struct {
	label int64
	dies  time.Time
}

func (s *server) Forget(ctx context.Context, f *backend.ForgetRequest) error {
	if _, err := s.begun(ctx, f.Deadline); err != nil {
		if s.has("forgets too late, and says so") {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.empty(f)
		}
		return err
	}
	if ctx.Err() != nil && s.has("no error under a cancelled context") {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !(s.has("erases, and does not remember") && f.Erase) {
		s.remember(f)
	}
	s.empty(f)
	return nil
}

// contents returns what the server stores, as a snapshot would.
func (s *server) contents() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all strings.Builder
	for name, it := range s.items {
		if time.Now().Before(it.dies) {
			fmt.Fprintln(&all, name.key, name.Bucket, it.count)
		}
	}
	for key, mark := range s.forgotten {
		if s.has("erases, and remembers by key") {
			fmt.Fprintln(&all, key)
		}
		fmt.Fprintln(&all, mark.label)
	}
	return all.String(), nil
}

func (s *server) remember(f *backend.ForgetRequest) {
	label, remember := f.Label, f.Remember
	switch {
	case s.has("remembers seconds"):
		label -= label % int64(time.Second)
	case s.has("remembers in floats"):
		label = int64(float64(label))
	case s.has("remembers nothing before 1970"):
		label = max(0, label)
	case s.has("remembers half as long"):
		remember /= 2
	case s.has("remembers in milliseconds of 32 bits"):
		remember = time.Duration(int32(remember.Milliseconds())) * time.Millisecond
	}
	mark := forgotten{label, time.Now().Add(remember)}
	if s.has("a Remember above 30 days is a date") && remember > 30*24*time.Hour {
		mark.dies = time.Unix(int64(remember/time.Second), 0)
	}
	if last, there := s.forgotten[f.Key]; there && time.Now().Before(last.dies) && !s.has("remembers the last Forget") {
		mark.label = max(mark.label, last.label)
		if last.dies.After(mark.dies) && !s.has("an older label is remembered for less") {
			mark.dies = last.dies
		}
	}
	s.forgotten[f.Key] = mark
	if s.has("remembers for all keys") {
		s.forgotten[""] = mark
	}
}

func (s *server) empty(f *backend.ForgetRequest) {
	items := s.items
	if s.has("forgets on a copy") {
		items = maps.Clone(s.items)
		s.mu.Unlock()
		time.Sleep(100 * time.Microsecond)
		s.mu.Lock()
	}
	left := 1000
	for key, names := range s.keys {
		if key != f.Key && !(s.has("forgets the neighbours") && strings.HasPrefix(key, f.Key)) && !(s.has("erases the neighbours") && f.Erase && strings.HasPrefix(f.Key, key)) {
			continue
		}
		for _, name := range names {
			it := items[name]
			b := it.bucket
			switch {
			case s.has("erases as it forgets") && f.Erase:
				it.count = 0
				items[name] = it
			case s.has("erases what counts") && f.Erase && it.count == 0:
			case s.has("erases what is not old") && f.Erase && b.End().Before(f.Now.Add(-25*time.Hour)):
			case s.has("forgets the finest tier alone") && b.Width != f.Ladder.At(0).Width:
			case s.has("forgets the coarsest tier alone") && b.Width != f.Ladder.At(f.Ladder.Len()-1).Width:
			case s.has("forgets what is not ahead") && b.Start().After(f.Now):
			case s.has("forgets a thousand buckets") && left == 0:
			default:
				delete(items, name)
				left = max(0, left-1)
			}
		}
	}
	s.items = items
}

func (s *server) Forgotten(ctx context.Context, r *backend.ForgetRequest) (int64, error) {
	key := r.Key
	if _, err := s.begun(ctx, r.Deadline); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has("remembers for all keys") {
		key = ""
	}
	mark, there := s.forgotten[key]
	if !there || !time.Now().Before(mark.dies) {
		return 0, nil
	}
	return mark.label, nil
}

// before tells of an addition that the server does not count.
func (s *server) before(op *backend.Request) bool {
	mark, there := s.forgotten[op.Key]
	return there && op.N > 0 && op.Now.UnixNano() <= mark.label && s.has("hits before the label of a Forget do not count")
}
