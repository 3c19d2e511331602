package rules

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// DefaultEvery is the default of WatchConfig.Every.
const DefaultEvery = 5 * time.Second

// WatchConfig is the configuration of [Watch].
type WatchConfig struct {
	// Apply is called with the rules of each changed file, by one goroutine, such
	// as for Limiter.Replace. An error of Apply keeps the rules until now, and Apply
	// is called again after Every. Required.
	Apply func(*Set) error

	// Every is the time between two reads of the file, at least a millisecond. A
	// change is believed once two reads in a row have found it, a fifth of Every
	// apart. Default: DefaultEvery, five seconds: a change is applied after at most
	// six.
	Every time.Duration

	// Read, if set, is called after each read, by the same goroutine, with the error
	// for which the file was refused, or with nil if its rules are in force. Set
	// Limiter.RulesRead, and tally.Status and the metrics of a Limiter have it.
	Read func(error)

	// Logger gets a line when a file is refused, at most once a minute, and a line
	// when the rules in force are those of the file again. Default: slog.Default().
	// To log nothing, set slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

// quiet is the time from one line about a refused file to the next.
const quiet = time.Minute

// Watcher reads a file of rules again and again, and applies its changes. The
// Watcher reads the content, so all ways of writing a file are noticed: in place,
// under a new name, and behind a symbolic link, as in mounted config maps. A file
// that is missing, empty, half written or bad changes nothing: the rules until
// now stay, and Stats tells so. [Watch] makes a Watcher, and Close ends it. Many
// goroutines may use a Watcher at once.
type Watcher struct {
	cfg  WatchConfig
	stop chan struct{}
	once sync.Once
	done sync.WaitGroup

	told   bool      // that the file is refused; only watch uses it
	toldAt time.Time // last

	mu    sync.Mutex
	set   *Set
	stats WatchStats
}

// WatchStats are the numbers of a [Watcher].
type WatchStats struct {
	Generation int64     // rules applied, the rules of the beginning included
	Applied    time.Time // when the rules of Set were applied, or the watch began
	Failures   int64     // reads that found no usable rules, and changes that Apply refused
	Err        error     // of the last read; nil: the rules of Set are those of the file
}

// Watch watches the file of set. The set comes from Load, and the program has
// applied the set already.
func Watch(set *Set, cfg WatchConfig) (*Watcher, error) {
	switch {
	case set == nil || !set.loaded:
		return nil, errors.New("rules: Watch: the set has no file, want a set of Load")
	case cfg.Apply == nil:
		return nil, errors.New("rules: WatchConfig.Apply is nil, want a function that applies the rules, such as Limiter.Replace")
	case cfg.Every == 0:
		cfg.Every = DefaultEvery
	case cfg.Every < time.Millisecond:
		return nil, fmt.Errorf("rules: WatchConfig.Every is %s, want %s or more, or 0 for %s", cfg.Every, time.Millisecond, DefaultEvery)
	}
	w := &Watcher{cfg: cfg, stop: make(chan struct{}), set: set, stats: WatchStats{Generation: 1, Applied: time.Now()}}
	w.done.Go(w.watch)
	return w, nil
}

// Set returns the rules that were applied last.
func (w *Watcher) Set() *Set {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.set
}

// Stats returns the numbers of w.
func (w *Watcher) Stats() WatchStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Close ends the watch. After Close has returned, Apply is not called any more.
// Further calls do nothing.
func (w *Watcher) Close() {
	w.once.Do(func() { close(w.stop) })
	w.done.Wait()
}

// watch reads until Close.
func (w *Watcher) watch() {
	timer := time.NewTimer(w.cfg.Every)
	defer timer.Stop()
	var seen []byte // the content of the last read, if it is to be believed by one more
	for {
		select {
		case <-w.stop:
			return
		case <-timer.C:
		}
		next := w.cfg.Every
		data, err := read(w.set.file)
		switch {
		case err != nil:
			seen = nil
			w.failed(fmt.Errorf("rules: %w", err))
		case sha256.Sum256(data) == w.set.sum: // only this goroutine changes w.set
			seen = nil
			w.failed(nil)
		case seen == nil || !bytes.Equal(data, seen):
			seen, next = data, w.cfg.Every/5 // not nil, even if the file is empty
		default:
			seen = nil
			w.failed(w.apply(data))
		}
		timer.Reset(next)
	}
}

// apply parses and applies a new content.
func (w *Watcher) apply(data []byte) error {
	set, err := Parse(w.set.file, data)
	if err != nil {
		return err
	}
	set.loaded = true
	if err := w.cfg.Apply(set); err != nil {
		return fmt.Errorf("rules: apply %s: %w", set.file, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set = set
	w.stats.Generation++
	w.stats.Applied = time.Now()
	return nil
}

// failed notes the outcome of a read.
func (w *Watcher) failed(err error) {
	log := cmp.Or(w.cfg.Logger, slog.Default())
	switch now := time.Now(); {
	case err == nil && w.told:
		w.told = false
		log.Info("rules: the rules in force are those of the file again", "file", w.set.file)
	case err != nil && !w.told && (w.toldAt.IsZero() || now.Sub(w.toldAt) >= quiet):
		w.told, w.toldAt = true, now
		log.Warn("rules: the file is refused, the rules until now stay", "file", w.set.file, "error", err)
	}
	if w.cfg.Read != nil {
		w.cfg.Read(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Err = err
	if err != nil {
		w.stats.Failures++
	}
}
