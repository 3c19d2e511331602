package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/abacus-go/abacus/backend"
	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/internal/dur"
	"github.com/abacus-go/abacus/internal/redisscript"
)

// The layout Plain: each bucket is a string key with a decimal number.
//
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
// anew, for ever.
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

// plain is a Store with the layout Plain.
type plain struct {
	base
	transacts atomic.Bool // the server has MULTI, and PEXPIRE with NX, as far as is known
}

var _ layout = (*plain)(nil)

func (s *plain) Check(ctx context.Context) error { return backend.CheckStore(ctx, s) }

// maxPlainReads is the most buckets that a transaction reads: no other client gets an
// answer meanwhile.
const maxPlainReads = 1000

// Do adds and reads in one transaction. Further transactions read more than 1,000
// buckets, and take back from buckets that hold less than was to be taken.
func (s *plain) Do(ctx context.Context, req *backend.Request) error {
	req.Ordered = false
	for i := range req.Add {
		req.Add[i].Count = 0
	}
	ctx, cancel, err := s.start(ctx, req.Deadline)
	if err != nil {
		return err
	}
	defer cancel()
	var reads []string
	for i := range req.Read {
		span := &req.Read[i]
		reads = appendNames(reads, req.Key, span.Width, span.First, int64(len(span.Counts)))
	}
	first := min(len(reads), maxPlainReads)
	counts := make([]int64, 0, len(reads))
	if len(req.Add) > 0 || first > 0 {
		counts, err = s.change(ctx, req, counts, reads[:first])
	}
	for chunk := range slices.Chunk(reads[first:], maxPlainReads) {
		if err == nil {
			counts, err = s.read(ctx, counts, chunk)
		}
	}
	if err != nil {
		return err
	}
	for i := range req.Read {
		counts = counts[copy(req.Read[i].Counts, counts):]
	}
	req.Ordered = len(req.Add) == 0 || req.N > 0
	return nil
}

// change does the additions or takings back of req, reads the buckets of names, and
// appends their counts to dst.
func (s *plain) change(ctx context.Context, req *backend.Request, dst []int64, names []string) ([]int64, error) {
	buckets := s.names(req)
	if len(buckets) > 0 {
		if err := s.ready(ctx, buckets[0], req.Life(&req.Add[0])); err != nil {
			return dst, err
		}
	}
	if req.N < 0 {
		amounts := make([]int64, len(buckets))
		for i := range amounts {
			amounts[i] = -req.N
		}
		return s.takeBack(ctx, req.Add, buckets, amounts, dst, names)
	}
	t, adds := transaction{ctx: ctx}, make([]*redis.Cmd, len(buckets))
	for i, bucket := range buckets {
		adds[i] = t.add("incrby", bucket, req.N)
		t.add("pexpire", bucket, milliseconds(req.Life(&req.Add[i])), "nx")
	}
	answer := t.mget(names)
	s.exec(&t)
	err := t.err()
	var over []string
	for i, add := range adds {
		n, failed := add.Int64()
		switch {
		case failed != nil && isOverflow(failed), failed == nil && n > backend.MaxCount:
			if failed == nil {
				over = append(over, buckets[i])
			}
			err = backend.ErrMaxCount
		case failed == nil && n < req.N:
			err = redisscript.ErrForeign // a number below zero
		case failed == nil:
			req.Add[i].Count = n
		}
	}
	if over != nil {
		s.undo(ctx, over, req.N)
	}
	if err == nil {
		dst, err = answer.append(dst)
	}
	return dst, s.failed(ctx, err)
}

// read appends the counts of at most maxPlainReads buckets to dst.
func (s *plain) read(ctx context.Context, dst []int64, names []string) ([]int64, error) {
	t := transaction{ctx: ctx}
	answer := t.mget(names)
	s.exec(&t)
	err := t.err()
	if err == nil {
		dst, err = answer.append(dst)
	}
	return dst, s.failed(ctx, err)
}

// undo takes n back from buckets that would count more than MaxCount.
func (s *plain) undo(ctx context.Context, buckets []string, n int64) {
	t := transaction{ctx: ctx}
	for _, bucket := range buckets {
		t.takeBack(bucket, n)
	}
	s.exec(&t)
	if t.err() != nil {
		s.unheardKept.Add(1)
	}
}

// takeBack takes amounts[i] from buckets[i], down to 0, and writes the counts that are
// left into slots. The first transaction also reads the buckets of names, and takeBack
// appends their counts to dst.
func (s *plain) takeBack(ctx context.Context, slots []backend.Slot, buckets []string, amounts, dst []int64, names []string) ([]int64, error) {
	for rest := make([]taking, len(buckets)); ; {
		t := transaction{ctx: ctx}
		for i, bucket := range buckets {
			if amounts[i] > 0 {
				rest[i] = t.takeBack(bucket, amounts[i])
			}
		}
		if len(t.commands) == 0 && len(names) == 0 {
			return dst, nil
		}
		answer := t.mget(names)
		s.exec(&t)
		err := t.err()
		for i := range buckets {
			if amounts[i] == 0 {
				continue
			}
			count, tooFew, failed := rest[i].left()
			if failed != nil {
				err = cmp.Or(err, failed)
				continue
			}
			slots[i].Count, amounts[i] = min(count, backend.MaxCount), 0
			if tooFew {
				amounts[i] = count
			}
		}
		if err == nil {
			dst, err = answer.append(dst)
		}
		if err != nil {
			return dst, s.failed(ctx, err)
		}
		names = nil
	}
}

// names returns the stored keys of the buckets of r.Add.
func (s *plain) names(r *backend.Request) (all []string) {
	for i := range r.Add {
		all = appendNames(all, r.Key, r.Add[i].Width, r.Add[i].Index, 1)
	}
	return all
}

// appendNames appends the stored keys of n adjacent buckets. The braces keep the buckets
// of a key on one node of a Cluster; the key itself has no braces. The width ends before
// the last colon.
func appendNames(dst []string, key string, width time.Duration, first, n int64) []string {
	stem := rootTag(key) + ":" + dur.Format(width) + ":"
	for i := range n {
		dst = append(dst, stem+strconv.FormatInt(first+i, 10))
	}
	return dst
}

// isBucketName tells whether name can be the stored key of a bucket.
func isBucketName(name []byte) bool {
	_, rest, ok := strings.Cut(string(name), "}:")
	width, index, found := strings.Cut(rest, ":")
	if !ok || !found || name[0] != '{' {
		return false
	}
	if _, err := strconv.ParseInt(index, 10, 64); err != nil {
		return false
	}
	d, err := dur.Parse(width)
	return err == nil && d > 0
}

// milliseconds returns the argument of PEXPIRE for a time to live.
func milliseconds(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}

// ready returns an error if the server has no transactions, or no PEXPIRE with NX. A
// server or proxy that refuses MULTI would execute the commands behind MULTI one by one,
// so nothing is added before an empty-handed transaction has succeeded.
func (s *plain) ready(ctx context.Context, bucket string, ttl time.Duration) error {
	if s.transacts.Load() {
		return nil
	}
	t := transaction{ctx: ctx}
	t.add("pexpire", bucket, milliseconds(ttl), "nx")
	s.exec(&t)
	if err := t.err(); err != nil {
		return s.failed(ctx, err)
	}
	s.transacts.Store(true)
	return nil
}

// exec sends a transaction, once. The answers are in its commands. After an answer that
// refuses the transaction as a whole, the next call asks again whether the server has
// transactions.
func (s *plain) exec(t *transaction) {
	pipe := s.server.Client().TxPipeline()
	err := pipe.BatchProcess(t.ctx, t.commands...)
	if err == nil {
		_, err = pipe.Exec(t.ctx)
	}
	var answer redis.Error
	refused := errors.As(err, &answer)
	for _, cmd := range t.commands {
		cmd := cmd.(redisscript.Once)
		if err != nil && cmd.Err() == nil && cmd.Val() == nil {
			cmd.SetErr(err) // of a hook of the client
		}
		refused = refused && cmd.Err() != nil
	}
	if refused {
		s.transacts.Store(false)
	}
}

// failed explains an error of a transaction.
func (s *plain) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	switch text := err.Error(); {
	case errors.Is(err, backend.ErrMaxCount):
		return fmt.Errorf("%s: %w", s, err)
	case strings.Contains(text, "not an integer"):
		return s.server.Failed(ctx, redisscript.ErrForeign)
	case redis.HasErrorPrefix(err, "NOPERM"), strings.Contains(text, "unknown command"), strings.Contains(text, "unsupported command"),
		strings.Contains(text, "wrong number of arguments"):
		return fmt.Errorf("%s: the layout Plain needs MULTI, and PEXPIRE with NX: %w", s, err)
	}
	return s.server.Failed(ctx, err)
}

// isOverflow tells whether a number would have more than 64 bits.
func isOverflow(err error) bool { return err != nil && strings.Contains(err.Error(), "would overflow") }

// transaction is the commands between MULTI and EXEC.
type transaction struct {
	ctx      context.Context
	commands []redis.Cmder
}

func (t *transaction) add(words ...any) *redis.Cmd {
	cmd := redis.NewCmd(t.ctx, words...)
	t.commands = append(t.commands, redisscript.Once{Cmd: cmd})
	return cmd
}

// err returns the first error that is the reason of a failure, nil if no command failed.
// A DECRBY that found too little is no failure.
func (t *transaction) err() (first error) {
	for _, cmd := range t.commands {
		switch err := cmd.Err(); {
		case err == nil, isOverflow(err):
		case first == nil, redis.HasErrorPrefix(first, "EXECABORT") && !redis.HasErrorPrefix(err, "EXECABORT"):
			first = err
		}
	}
	return first
}

// taking is the answers to a taking back.
type taking [5]*redis.Cmd

func (t *transaction) takeBack(bucket string, n int64) (answers taking) {
	for i, words := range takingBack(bucket, strconv.FormatInt(n, 10)) {
		all := make([]any, len(words))
		for j, word := range words {
			all[j] = word
		}
		answers[i] = t.add(all...)
	}
	return answers
}

// left returns the count after a taking back, and whether the bucket had fewer hits than
// were to be taken, and lost none.
func (t taking) left() (count int64, tooFew bool, err error) {
	if isOverflow(t[0].Err()) {
		return 0, false, redisscript.ErrForeign // a number below zero
	}
	count, err = t[3].Int64()
	return count, isOverflow(t[1].Err()), err
}

// takingBack returns the commands that take n hits from a bucket.
func takingBack(bucket, n string) [5][]string {
	return [...][]string{
		{"incrby", bucket, "-9223372036854775808"},
		{"decrby", bucket, n},
		{"incrby", bucket, "9223372036854775807"},
		{"incr", bucket},
		{"pexpire", bucket, "0", "nx"},
	}
}

// reading is the answers to a reading of buckets.
type reading struct {
	buckets       int
	values, exist *redis.Cmd
}

// mget reads buckets. A value of another type looks missing to MGET, and exists to
// EXISTS.
func (t *transaction) mget(names []string) (r reading) {
	if len(names) == 0 {
		return r
	}
	words := make([]any, 1+len(names))
	for i, name := range names {
		words[1+i] = name
	}
	exists := slices.Clone(words)
	words[0], exists[0] = "mget", "exists"
	return reading{len(names), t.add(words...), t.add(exists...)}
}

// append appends the counts of the buckets to dst. A count above MaxCount belongs to an
// addition that is about to be taken back: the bucket is full.
func (r reading) append(dst []int64) ([]int64, error) {
	if r.buckets == 0 {
		return dst, nil
	}
	values, _ := r.values.Val().([]any)
	existing, _ := r.exist.Val().(int64)
	if len(values) != r.buckets {
		return dst, fmt.Errorf("an unexpected answer of %d values, want %d", len(values), r.buckets)
	}
	dst, found, err := appendCounts(dst, values)
	if err == nil && existing != found {
		err = redisscript.ErrForeign
	}
	return dst, err
}

// appendCounts appends the counts of values to dst, and returns the number of values that
// exist.
func appendCounts(dst []int64, values []any) (all []int64, found int64, err error) {
	for _, value := range values {
		if value == nil {
			dst = append(dst, 0)
			continue
		}
		text, _ := value.(string)
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			return dst, 0, redisscript.ErrForeign
		}
		dst = append(dst, int64(min(n, backend.MaxCount)))
		found++
	}
	return dst, found, nil
}
