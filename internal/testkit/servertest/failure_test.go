package servertest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The behaviour on a failing test is tried on invented tests.
type fakeTest struct {
	testing.TB
	dir      string
	failed   bool
	cleanups []func()
	logged   strings.Builder
}

func (f *fakeTest) Helper()                     {}
func (f *fakeTest) Name() string                { return "a fake" }
func (f *fakeTest) FailNow()                    { runtime.Goexit() }
func (f *fakeTest) TempDir() string             { return f.dir }
func (f *fakeTest) Failed() bool                { return f.failed }
func (f *fakeTest) Cleanup(cleanup func())      { f.cleanups = append(f.cleanups, cleanup) }
func (f *fakeTest) Logf(f1 string, args ...any) { fmt.Fprintf(&f.logged, f1+"\n", args...) }

func (f *fakeTest) Errorf(format string, args ...any) {
	f.failed = true
	f.Logf(format, args...)
}

// run runs a test and its cleanups to their end.
func (f *fakeTest) run(test func(t testing.TB)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := range f.cleanups {
				f.cleanups[len(f.cleanups)-1-i]()
			}
		}()
		test(f)
	}()
	<-done
}

func TestFailedTestShowsTheLog(t *testing.T) {
	t.Parallel()
	for _, failed := range []bool{true, false} {
		f := &fakeTest{dir: t.TempDir()}
		f.run(func(t testing.TB) {
			StartRedis(t)
			f.failed = failed
		})
		require.Equal(t, failed, strings.Contains(f.logged.String(), "Ready to accept connections"), f.logged.String())
	}
}

func TestServerThatCannotStartFailsTheTest(t *testing.T) {
	t.Parallel()
	f := &fakeTest{dir: t.TempDir()}
	f.run(func(t testing.TB) { Redis(t, "--no-such-setting", "1") })
	require.True(t, f.failed)
	require.Contains(t, f.logged.String(), "the process has exited")
	require.Contains(t, f.logged.String(), "start redis-server")
	require.Contains(t, f.logged.String(), "no-such-setting", "with what the server says")
}

func TestMissingProgramFailsTheTest(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for program, start := range map[string]func(t testing.TB){
		"memcached":    func(t testing.TB) { Memcached(t) },
		"redis-server": func(t testing.TB) { Redis(t) },
	} {
		f := &fakeTest{dir: t.TempDir()}
		f.run(start)
		require.True(t, f.failed)
		require.Contains(t, f.logged.String(), program+" is missing: install ")
		require.Contains(t, f.logged.String(), "make test as root installs it")
	}
}

// childEnv makes this test binary start servers, print their addresses and
// wait to be killed.
const childEnv = "SERVERTEST_CHILD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		f := &fakeTest{dir: dir}
		f.run(func(t testing.TB) {
			fmt.Println(Memcached(t), Redis(t))
			select {}
		})
	}
	os.Exit(m.Run())
}
