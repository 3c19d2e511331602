package backendtest

import (
	"fmt"
	"sync"
	"time"
)

var crowds = []check{
	{
		name: "places are distinct",
		rule: "each addition is atomic: no two that succeed return the same place",
		run:  distinctPlaces,
	},
	{
		name: "a crowd adds and takes back",
		rule: "each addition is atomic, and so is each taking back",
		run:  inAndOut,
	},
	{
		name: "a crowd on many keys",
		rule: "a Store is used by many goroutines at once, and answers each what it has asked",
		run:  manyKeys,
	},
	{
		name: "too late to begin",
		rule: "when ctx is done or op.Deadline has passed already, Do returns an error and sends nothing",
		run:  tooLate,
	},
	{
		name: "calls cut short",
		rule: "an error leaves only what its Slots say for certain, and takes nobody else's; no nil unless all was done",
		run:  cutShort,
	},
	{
		name:    "the op is the caller's again",
		rule:    "op and all that it points to belong to the caller as soon as Do returns",
		instead: usesTake,
		run:     ownership,
	},
}

func distinctPlaces(s *subject) error {
	const callers, calls = 64, 20
	var mu sync.Mutex
	places := make([]map[int64]bool, 3)
	for i := range places {
		places[i] = map[int64]bool{}
	}
	err := together(callers, func(int) error {
		for range calls {
			got, err := s.add(dayLadder, "k", noon, 1)
			if err != nil {
				return err
			}
			mu.Lock()
			for i, place := range got {
				if places[i][place] || place < 1 || place > callers*calls {
					mu.Unlock()
					return fmt.Errorf("tier %d: place %d was given twice, or is none", i, place)
				}
				places[i][place] = true
			}
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.expect(dayLadder, "k", noon, noon, callers*calls)
}

func inAndOut(s *subject) error {
	const callers, calls = 32, 20
	err := together(callers, func(i int) error {
		at := noon.Add(time.Duration(i%4) * time.Second)
		for j := range calls {
			if _, err := s.add(dayLadder, "k", at, 5); err != nil {
				return err
			}
			if j%2 == 1 {
				continue
			}
			if _, err := s.add(dayLadder, "k", at, -5); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	const all = callers * calls / 2 * 5
	return s.expect(dayLadder, "k", noon, noon, all/4, all, all)
}

func manyKeys(s *subject) error {
	const callers, calls = 32, 40
	// Every caller has a key of its own, between the keys of the other callers, and
	// all share a key.
	err := together(callers, func(i int) error {
		own, sum := fmt.Sprint("own", i), int64(0)
		for j := range calls {
			at := noon.Add(time.Duration(j/10) * time.Second)
			n := int64(1 + (i+j)%5)
			sum += n
			got, err := s.add(dayLadder, own, at, n)
			if err != nil {
				return err
			}
			if got[1] != sum {
				return fmt.Errorf("%s, which nobody else adds to: the minute is %d, want %d", own, got[1], sum)
			}
			read, err := s.row(dayLadder, own, at, time.Minute, noon.Unix()/60-int64(i), 1+2*i)
			if err != nil {
				return err
			}
			if read[i] != sum {
				return fmt.Errorf("%s, which nobody else adds to: the minute was read as %d, want %d", own, read[i], sum)
			}
			if _, err := s.add(dayLadder, "shared", at, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.expect(dayLadder, "shared", noon, noon, callers*10, callers*calls, callers*calls)
}
