package compare

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/abacus-go/abacus/cmd/demo/internal/eventlog"
	"github.com/abacus-go/abacus/counter"
)

// MaxEvents is the length of the longest log, half a gigabyte at 24 bytes an
// event. A log is read once and held in memory, since each algorithm needs all
// events.
const MaxEvents = 20_000_000

// Log is a log in memory, made by [Load] or [Generate] and constant afterwards.
type Log struct {
	Name string // or of the model of generated traffic
	eventlog.Seen

	number map[counter.Key]uint32 // of a key, until finish
	keys   []counter.Key          // by number, in order of appearance
	events []event                // in the order of the log
	byKey  []uint32               // numbers of events: all of key 0 in order, all of key 1, ...
	starts []uint32               // where the events of each key begin in byKey, and the end of the last
}

// event is a hit: microseconds since the Unix epoch, and the number of a key.
type event struct {
	at  int64
	key uint32
}

// of returns the numbers of a key's events, in order.
func (l *Log) of(key int) []uint32 { return l.byKey[l.starts[key]:l.starts[key+1]] }

// name formats a key for readers.
func (l *Log) name(key int) string { return l.keys[key].Event + " of " + l.keys[key].Feature }

func (l *Log) at(event uint32) time.Time { return time.UnixMicro(l.events[event].at).UTC() }

func newLog(name string) *Log { return &Log{Name: name, number: map[counter.Key]uint32{}} }

// add adds an event, before finish.
func (l *Log) add(at time.Time, key counter.Key) error {
	if len(l.events) == MaxEvents {
		return fmt.Errorf("%s: more than %d events, want at most that many, for all of them are held in memory", l.Name, MaxEvents)
	}
	number, known := l.number[key]
	if !known {
		number = uint32(len(l.keys))
		l.number[key] = number
		l.keys = append(l.keys, key)
	}
	l.events = append(l.events, event{at.UnixMicro(), number})
	l.Add(at)
	return nil
}

// finish groups the events by key.
func (l *Log) finish() (*Log, error) {
	if len(l.events) == 0 {
		return nil, fmt.Errorf("%s: no events, want at least one to compare by", l.Name)
	}
	l.number, l.starts = nil, make([]uint32, len(l.keys)+1)
	for _, e := range l.events {
		l.starts[e.key+1]++
	}
	for k := range l.keys {
		l.starts[k+1] += l.starts[k]
	}
	next := slices.Clone(l.starts)
	l.byKey = make([]uint32, len(l.events))
	for i, e := range l.events {
		l.byKey[next[e.key]] = uint32(i)
		next[e.key]++
	}
	return l, nil
}

// Load reads all of a log. An error is an [eventlog.Error], the error of ctx, or a
// complaint about a log of no events or too many.
func Load(ctx context.Context, source *eventlog.Log) (*Log, error) {
	l := newLog(source.Name)
	err := source.Each(ctx, &l.Seen, func(e *eventlog.Event) error {
		return l.add(e.At, counter.Key{Event: e.Event, Feature: e.Feature})
	})
	if err != nil {
		return nil, err
	}
	return l.finish()
}
