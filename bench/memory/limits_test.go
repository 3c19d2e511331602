package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/try"
)

const day = 24 * time.Hour

// A limiter that does not count would win every race.
func TestEveryContestantCountsAndRefuses(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			c := try.To(kind.make(counter.MustLimits("30/m, 20/h, 10/d")))(t)
			for i := range 10 {
				require.NoError(t, c.hit("a"))
				if i < 4 {
					require.NoError(t, c.hit("b"))
				}
			}
			require.ErrorIs(t, c.hit("a"), errRefused)
			require.NoError(t, c.hit("b"))
			for key, want := range map[string]int64{"a": 10, "b": 5} {
				require.Equal(t, want, try.To(c.used(key))(t), key)
			}

			c = try.To(kind.make(counter.MustLimits("2/m, 5/h, 9/d")))(t)
			require.NoError(t, c.hit("a"))
			require.NoError(t, c.hit("a"))
			require.ErrorIs(t, c.hit("a"), errRefused, "the shortest limit counts too")
		})
	}
}

func TestWhatLimitsAdmit(t *testing.T) {
	for _, kind := range kinds {
		worst := worstWindow(t, kind.name, kind.make)
		t.Logf("%s admits %d of %d in its worst true window", kind.name, worst, attacked)
		if kind.peer {
			require.Greater(t, worst, attacked*3/2)
		} else {
			require.Equal(t, attacked, worst)
		}
	}
}

// attacked is the limit under attack.
const attacked = 100

// worstWindow is the most that a limit of 100 was seen to admit in a true
// window.
func worstWindow(t *testing.T, name string, newContestant func(counter.Limits) (contestant, error)) (worst int) {
	if name == "go-limiter" {
		// The contestant reads a clock outside of any bubble. A late machine misses
		// the window's edge: then again.
		for n := 0; n < 10 && worst <= attacked*3/2; n++ {
			const per = 200 * time.Millisecond
			c := try.To(newContestant(counter.Limits{{Max: attacked, Per: per}}))(t)
			worst = max(worst, attack(c, "key", per, per/20))
		}
		return worst
	}
	// Outside of the bubble: some contestants have a goroutine that never ends.
	c := try.To(newContestant(counter.Limits{{Max: attacked, Per: day}}))(t)
	synctest.Test(t, func(t *testing.T) {
		const begins = 48 // phases of the clock
		for i := range begins {
			worst = max(worst, attack(c, string(rune('A'+i)), day, time.Minute))
			time.Sleep(day / begins)
		}
	})
	return worst
}

// attack hits once, and as often as possible just before the first hit is a window
// old, and goes on for a window. The result is the most admitted hits of any
// window. A hit that fails is not admitted, and who admits everything is stopped at
// ten times the limit.
func attack(c contestant, key string, per, step time.Duration) int {
	var admitted []time.Time
	try := func() bool {
		now := time.Now()
		err := c.hit(key)
		if err == nil {
			admitted = append(admitted, now)
		}
		return err == nil && len(admitted) <= 10*attacked
	}
	try()
	time.Sleep(per - step)
	for range per/step + 1 {
		for try() {
		}
		time.Sleep(step)
	}
	worst, first := 0, 0
	for i, at := range admitted {
		for at.Sub(admitted[first]) >= per {
			first++
		}
		worst = max(worst, i-first+1)
	}
	return worst
}
