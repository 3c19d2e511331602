// Package plain keeps counts on Redis as anyone would by hand: each bucket of each tier is
// a string key with a decimal number and a time to live of its own, for redis-cli to read.
// No script is run. The package is the layout Plain of package redis, whose Open and New
// make a store of it.
package plain

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// A call is one transaction, from MULTI to EXEC, so a server executes all of its
// commands or none, whatever prefix of them has arrived when the connection is lost, and
// no other command comes in between. For each bucket an addition is
//
//	INCRBY bucket n
//	PEXPIRE bucket ttl NX
//
// After EXEC the bucket has a time to live: its own from before, or by PEXPIRE. The order
// matters on a server whose clock goes on inside a transaction: a bucket that expires
// between the two is gone, while an INCRBY behind a SET with NX would make the bucket
// again, for ever.
//
// Redis has no command that takes hits from an existing key only, and stops at 0. A
// taking back is
//
//	INCRBY bucket -9223372036854775808
//	DECRBY bucket n
//	INCRBY bucket 9223372036854775807
//	INCR bucket
//	PEXPIRE bucket 0 NX
//
// The first command brings a count of 0 to the least number of 64 bits. So DECRBY fails
// if the bucket has less than n, and changes nothing then; the next two commands bring the
// count back. A bucket that was missing has no time to live, and the last command deletes
// the bucket; any other bucket has one and stays. If there was less than n, the answers tell
// how much, and a second transaction takes that. A count is never below 0, not even for a
// moment: hits of others would be hidden.

// Store is the part of a [backend.Store] that depends on the form of the counts. A Store is
// used by many goroutines at once.
type Store struct {
	server    *redisscript.Server
	timeout   time.Duration
	transacts atomic.Bool // the server has MULTI, and PEXPIRE with NX, as far as is known
	notTaken  *atomic.Int64
}

// On makes a Store on a server. A call without a deadline ends after the timeout. notTaken
// counts the additions beyond MaxCount that could not be undone.
func On(server *redisscript.Server, timeout time.Duration, notTaken *atomic.Int64) *Store {
	return &Store{server: server, timeout: timeout, notTaken: notTaken}
}

// maxReads is the most buckets that a transaction reads: no other client gets an answer
// meanwhile.
const maxReads = 1000

// Do adds and reads in one transaction. Further transactions read more than 1,000
// buckets, and take back from buckets that hold less than was to be taken.
func (s *Store) Do(ctx context.Context, req *backend.Request) error {
	req.Ordered = len(req.Add) == 0 || req.N > 0
	for i := range req.Add {
		req.Add[i].Count = 0
	}
	var reads []string
	for i := range req.Read {
		reads = appendNames(reads, req.Key, req.Read[i].Width, req.Read[i].First, len(req.Read[i].Counts))
	}
	ctx, cancel, err := s.server.Begin(ctx, req.Deadline, s.timeout)
	if err != nil {
		return err
	}
	defer cancel()
	counts := make([]int64, 0, len(reads))
	first := reads[:min(len(reads), maxReads)]
	if req.N >= 0 {
		err = s.add(ctx, req, first, &counts)
	} else {
		err = s.takeBack(ctx, Names(req), slices.Repeat([]int64{-req.N}, len(req.Add)), req.Add, first, &counts)
	}
	for some := range slices.Chunk(reads[len(first):], maxReads) {
		if err == nil {
			_, err = s.exec(ctx, nil, some, &counts)
		}
	}
	for i := range req.Read {
		counts = counts[copy(req.Read[i].Counts, counts):]
	}
	return s.failed(ctx, err)
}

// add does the additions of req, reads buckets, and appends their counts to counts.
func (s *Store) add(ctx context.Context, req *backend.Request, reads []string, counts *[]int64) error {
	var commands [][]any
	for i, bucket := range Names(req) {
		commands = append(commands, []any{"incrby", bucket, req.N},
			[]any{"pexpire", bucket, milliseconds(req.Life(&req.Add[i])), "nx"})
	}
	answers, err := s.exec(ctx, commands, reads, counts)
	if answers == nil {
		return err
	}
	for i := range req.Add {
		n, failed := answers[2*i].Int64()
		switch {
		case overflows(failed):
			err = backend.ErrMaxCount
		case failed == nil && n > backend.MaxCount:
			if err = s.takeBack(ctx, Names(req)[i:i+1], []int64{req.N}, make([]backend.Slot, 1), nil, nil); err != nil {
				s.notTaken.Add(1)
			}
			err = errors.Join(backend.ErrMaxCount, err)
		case failed == nil && n < req.N: // a number below zero
			err = redisscript.ErrForeign
		case failed == nil:
			req.Add[i].Count = n
		}
	}
	return err
}

// takeBack takes amounts[i] from buckets[i], down to 0, and writes the counts that are
// left into slots. The first transaction also reads, as in add.
func (s *Store) takeBack(ctx context.Context, buckets []string, amounts []int64, slots []backend.Slot, reads []string, counts *[]int64) error {
	for again := true; again; reads = nil {
		var commands [][]any
		for i, bucket := range buckets {
			commands = append(commands, takingBack(bucket, strconv.FormatInt(amounts[i], 10))...)
		}
		answers, err := s.exec(ctx, commands, reads, counts)
		if answers == nil {
			return err
		}
		again = false
		for i := range buckets {
			answer := answers[5*i:]
			if overflows(answer[0].Err()) { // a number below zero
				return redisscript.ErrForeign
			}
			n, _ := answer[3].Int64()
			slots[i].Count, amounts[i] = min(n, backend.MaxCount), 0
			if overflows(answer[1].Err()) && n > 0 {
				amounts[i], again = n, true
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takingBack returns the commands that take n hits from a bucket.
func takingBack(bucket, n string) [][]any {
	return [][]any{
		{"incrby", bucket, "-9223372036854775808"},
		{"decrby", bucket, n},
		{"incrby", bucket, "9223372036854775807"},
		{"incr", bucket},
		{"pexpire", bucket, "0", "nx"},
	}
}

// Names returns the stored keys of the buckets of r.Add.
func Names(r *backend.Request) (all []string) {
	for i := range r.Add {
		all = appendNames(all, r.Key, r.Add[i].Width, r.Add[i].Index, 1)
	}
	return all
}

// appendNames appends the stored keys of n adjacent buckets. The braces keep the buckets of
// a key on one node of a Cluster; the key itself has no braces. The width ends before the
// last colon.
func appendNames(dst []string, key string, width time.Duration, first int64, n int) []string {
	stem := "{" + key + "}:" + dur.Format(width) + ":"
	for i := range int64(n) {
		dst = append(dst, stem+strconv.FormatInt(first+i, 10))
	}
	return dst
}

var isName = regexp.MustCompile(`^\{[^{}]+\}:[1-9][0-9a-zµ.]*[a-z]:-?[0-9]+$`).MatchString

// Adds reports whether the words of commands are a transaction that adds. An undo
// begins with a number below zero.
func Adds(commands [][]string) bool {
	return len(commands) > 1 && commands[0][0] == "multi" &&
		len(commands[1]) == 3 && commands[1][0] == "incrby" && isName(commands[1][1]) && commands[1][2][0] != '-'
}

// Undo returns a transaction that takes back what a transaction has added. From a bucket
// with less than was added, which has been emptied since, nothing is taken.
func Undo(commands [][]string) [][]string {
	back := [][]string{{"multi"}}
	for _, words := range commands {
		if words[0] == "incrby" && len(words) == 3 {
			for _, command := range takingBack(words[1], words[2]) {
				back = append(back, strings.Fields(fmt.Sprintln(command...))) // no word has a space
			}
		}
	}
	return append(back, []string{"exec"})
}

// milliseconds returns the argument of PEXPIRE for a time to live.
func milliseconds(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}

// within calls f with the context of a call, and explains the error.
func (s *Store) within(ctx context.Context, deadline time.Time, f func(ctx context.Context) error) error {
	ctx, cancel, err := s.server.Begin(ctx, deadline, s.timeout)
	if err != nil {
		return err
	}
	defer cancel()
	return s.failed(ctx, f(ctx))
}

// failed explains an error, if there is one.
func (s *Store) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, backend.ErrMaxCount):
		return fmt.Errorf("%s: %w", s.server, err)
	case says(err, "not an integer"):
		err = redisscript.ErrForeign
	case redis.HasErrorPrefix(err, "NOPERM"), says(err, "unknown command"), says(err, "unsupported command"), says(err, "wrong number of arguments"):
		return fmt.Errorf("%s: the layout Plain needs MULTI, and PEXPIRE with NX: %w", s.server, err)
	}
	return s.server.Failed(ctx, err)
}

func says(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// overflows reports whether a number would have more than 64 bits.
func overflows(err error) bool { return says(err, "would overflow") }

// exec sends commands as a transaction, once, with a reading of buckets, whose counts are
// appended to counts. The error is the first that is the reason of a failure: an overflow
// is none.
//
// A server or proxy that refuses MULTI would execute the commands behind MULTI one by one.
// So nothing is written before the last of the commands, a PEXPIRE of an option that came
// with NX, has succeeded as a transaction of its own, where it changes nothing. Otherwise
// there are no answers. After a failure the next call asks again.
func (s *Store) exec(ctx context.Context, commands [][]any, reads []string, counts *[]int64) (answers []*redis.Cmd, err error) {
	if n := len(commands); n > 1 && !s.transacts.Load() {
		if _, err = s.exec(ctx, commands[n-1:], nil, nil); err != nil {
			return nil, err
		}
		s.transacts.Store(true)
	}
	if len(reads) > 0 { // a value of another type looks missing to MGET, and exists to EXISTS
		mget := append(make([]any, 0, 1+len(reads)), "mget")
		for _, bucket := range reads {
			mget = append(mget, bucket)
		}
		commands = append(commands, mget, append([]any{"exists"}, mget[1:]...))
	}
	pipe := s.server.Client().TxPipeline()
	for _, words := range commands {
		answers = append(answers, redis.NewCmd(ctx, words...))
		_ = pipe.Process(ctx, redisscript.Once{Cmd: answers[len(answers)-1]}) // sends nothing yet
	}
	_, failed := pipe.Exec(ctx)
	for _, answer := range answers {
		if e := answer.Err(); e != nil && !overflows(e) && (err == nil || redis.HasErrorPrefix(err, "EXECABORT")) {
			err = e
		}
	}
	if err == nil && !overflows(failed) {
		err = failed // of a hook of the client
	}
	if err != nil {
		s.transacts.Store(false)
	} else if len(reads) > 0 {
		values, _ := answers[len(answers)-2].Slice()
		existing, _ := answers[len(answers)-1].Int64()
		var found int64
		if found, err = appendCounts(counts, values); err == nil && (found != existing || len(values) != len(reads)) {
			err = redisscript.ErrForeign
		}
	}
	return answers, err
}

// appendCounts appends the counts of values to counts, and returns the number of values
// that exist. A count above MaxCount belongs to an addition that is about to be taken
// back: the bucket is full.
func appendCounts(counts *[]int64, values []any) (found int64, err error) {
	for _, value := range values {
		n := uint64(0)
		if value != nil {
			text, _ := value.(string)
			if n, err = strconv.ParseUint(text, 10, 63); err != nil {
				return 0, redisscript.ErrForeign
			}
			found++
		}
		*counts = append(*counts, int64(min(n, backend.MaxCount)))
	}
	return found, nil
}
