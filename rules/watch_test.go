package rules_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/backend/memory"
	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
	"github.com/abacus-go/abacus/limiter"
	"github.com/abacus-go/abacus/rules"
)

// of is a file of one rule.
func of(limits string) string { return "events:\n  signup:\n    ip:\n      limits: " + limits + "\n" }

var errRefused = errors.New("refused")

// within is the time in which a change must be applied.
const within = 10 * time.Second

// watched runs f in a bubble of its own, where time stands still but for sleeps, with a
// file of 5/m that is watched.
func watched(t *testing.T, f func(path string, w *rules.Watcher, applied *[]string, refuse *atomic.Bool)) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, of("5/m"))
	synctest.Test(t, func(t *testing.T) {
		set := try.To(rules.Load(path))(t)
		var applied []string
		var refuse atomic.Bool
		w := try.To(rules.Watch(set, rules.WatchConfig{Apply: func(set *rules.Set) error {
			applied = append(applied, set.Rules[0].Limits.String())
			if refuse.Load() {
				return errRefused
			}
			return nil
		}}))(t)
		f(path, w, &applied, &refuse)
		w.Close()
		w.Close()
	})
}

func write(t *testing.T, path, text string) {
	require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
}

// pass lets time pass, until all goroutines wait again.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Each way in which programs write files is seen, once.
func TestWaysToWrite(t *testing.T) {
	for name, change := range map[string]func(path, to string){
		"in place": func(path, to string) { write(t, path, to) },
		"renamed": func(path, to string) {
			write(t, path+".new", to)
			require.NoError(t, os.Rename(path+".new", path))
		},
		"removed first": func(path, to string) {
			require.NoError(t, os.Remove(path))
			write(t, path, to)
		},
	} {
		watched(t, func(path string, w *rules.Watcher, applied *[]string, _ *atomic.Bool) {
			change(path, of("6/m"))
			pass(within)
			require.Equal(t, []string{"6/m"}, *applied, name)
			pass(time.Hour)
			require.Equal(t, []string{"6/m"}, *applied, name)
			require.EqualValues(t, 2, w.Stats().Generation)
			require.Zero(t, w.Stats().Failures)
			require.Equal(t, "6/m", w.Set().Rules[0].Limits.String())
			again, err := rules.Watch(w.Set(), rules.WatchConfig{Apply: func(*rules.Set) error { return nil }})
			require.NoError(t, err, "the set has a file still")
			again.Close()
		})
	}
}

// A config map is a link to a link to a directory, which is swapped.
func TestConfigMap(t *testing.T) {
	watched(t, func(path string, w *rules.Watcher, applied *[]string, _ *atomic.Bool) {
		dir := filepath.Dir(path)
		for version, limits := range map[string]string{"v1": "5/m", "v2": "6/m"} {
			require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o777))
			write(t, filepath.Join(dir, version, "rules.yaml"), of(limits))
		}
		require.NoError(t, os.Symlink("v1", filepath.Join(dir, "..data")))
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.Symlink(filepath.Join("..data", "rules.yaml"), path))
		pass(within)
		require.NoError(t, os.Symlink("v2", filepath.Join(dir, "..new")))
		require.NoError(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "v1")))
		pass(within)
		require.Equal(t, []string{"6/m"}, *applied)
	})
}

// A file that is no set of rules keeps the rules until now, and is told.
func TestOldRulesStay(t *testing.T) {
	for name, text := range map[string]string{
		"empty":   "",
		"half":    of("6/m")[:25],
		"bad":     of("6/fortnight"),
		"no rule": "events: {}\n",
	} {
		watched(t, func(path string, w *rules.Watcher, applied *[]string, _ *atomic.Bool) {
			write(t, path, text)
			pass(within)
			stats := w.Stats()
			require.Empty(t, *applied, name)
			require.Positive(t, stats.Failures, name)
			require.Error(t, stats.Err, name)
			require.EqualValues(t, 1, stats.Generation, name)

			write(t, path, of("7/m"))
			pass(within)
			require.Equal(t, []string{"7/m"}, *applied, name)
			require.NoError(t, w.Stats().Err, name)
		})
	}
}

// After the deletion of the file the watch goes on.
func TestDeletion(t *testing.T) {
	watched(t, func(path string, w *rules.Watcher, applied *[]string, _ *atomic.Bool) {
		require.NoError(t, os.Remove(path))
		pass(time.Hour)
		require.ErrorIs(t, w.Stats().Err, os.ErrNotExist)
		require.EqualValues(t, 720, w.Stats().Failures)
		write(t, path, of("5/m"))
		pass(within)
		require.NoError(t, w.Stats().Err)
		require.Empty(t, *applied)
	})
}

// A writer truncates first: the begin of a file can be rules by itself. No part of
// a file is applied that grows from read to read.
func TestSlowWriter(t *testing.T) {
	watched(t, func(path string, w *rules.Watcher, applied *[]string, _ *atomic.Bool) {
		whole := of("6/m") + "    user: {limits: 7/m}\n    email: {limits: 8/m}\n  login:\n    ip: {limits: 9/m}\n"
		for n := range len(whole) + 1 {
			write(t, path, whole[:n])
			pass(500 * time.Millisecond)
		}
		pass(within)
		require.Equal(t, []string{"6/m"}, *applied)
		require.Len(t, w.Set().Rules, 4)
		require.Zero(t, w.Stats().Failures)
	})
}

// An error of Apply keeps the rules, and the change is tried again.
func TestRefusedByApply(t *testing.T) {
	watched(t, func(path string, w *rules.Watcher, applied *[]string, refuse *atomic.Bool) {
		refuse.Store(true)
		write(t, path, of("6/m"))
		pass(within)
		require.ErrorIs(t, w.Stats().Err, errRefused)
		require.EqualValues(t, 1, w.Stats().Generation)
		require.Equal(t, "5/m", w.Set().Rules[0].Limits.String())
		refuse.Store(false)
		pass(within)
		require.EqualValues(t, 2, w.Stats().Generation)
		require.NoError(t, w.Stats().Err)
		require.Equal(t, "6/m", w.Set().Rules[0].Limits.String())
	})
}

func TestWatchWants(t *testing.T) {
	apply := func(*rules.Set) error { return nil }
	parsed := try.To(rules.Parse("rules.yaml", []byte(of("5/m"))))(t)
	_, err := rules.Watch(parsed, rules.WatchConfig{Apply: apply})
	require.EqualError(t, err, "rules: Watch: the set has no file, want a set of Load")
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, of("5/m"))
	loaded := try.To(rules.Load(path))(t)
	require.ErrorContains(t, try.Err(rules.Watch(loaded, rules.WatchConfig{})), "WatchConfig.Apply is nil")
	_, err = rules.Watch(loaded, rules.WatchConfig{Apply: apply, Every: time.Microsecond})
	require.ErrorContains(t, err, "WatchConfig.Every is 1µs, want 1ms or more")
}

// A file that is refused has a line in the log at once, and at most one a minute,
// and Read hands the state to a Limiter.
func TestRefusedFilesAreLogged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, of("2/d"))
	synctest.Test(t, func(t *testing.T) {
		set := try.To(rules.Load(path))(t)
		count := try.To(counter.New(memory.New(memory.Config{}), counter.Config{}))(t)
		lim := try.To(limiter.New(count, limiter.Config{Rules: set.Rules, Logger: slog.New(slog.DiscardHandler)}))(t)
		var log bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		w := try.To(rules.Watch(set, rules.WatchConfig{Apply: func(set *rules.Set) error { return lim.Replace(set.Rules...) }, Read: lim.RulesRead}))(t)
		defer w.Close()
		require.Zero(t, lim.Stats().RulesRead)
		pass(within)
		good := lim.Stats().RulesRead
		require.WithinDuration(t, time.Now(), good, within)
		const refused, again = `level=WARN msg="rules: the file is refused, the rules until now stay"`, `level=INFO msg="rules: the rules in force are those of the file again"`
		for i := range 10 { // five minutes
			write(t, path, of("never"))
			pass(15 * time.Second)
			if i == 0 {
				require.Equal(t, 1, strings.Count(log.String(), refused))
			}
			require.Contains(t, lim.Stats().RulesRefused, path+":4: ")
			require.WithinRange(t, lim.Stats().RulesRead, good, time.Now().Add(-within/2))
			write(t, path, of("3/d"))
			pass(15 * time.Second)
			require.Empty(t, lim.Stats().RulesRefused)
			require.Equal(t, "3/d", lim.Rules("signup")[0].Limits.String())
		}
		require.Equal(t, 5, strings.Count(log.String(), refused), log.String())
		require.Equal(t, 5, strings.Count(log.String(), again), log.String())
	})
}
