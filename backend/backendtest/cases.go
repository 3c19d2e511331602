package backendtest

import "github.com/abacus-go/abacus/internal/promise"

// check is a case. Cases are data, so that the suite can be tried on broken stores.
type check struct {
	name string
	run  func(*subject) // stops at the first failure
	is   kind
	rule string // in the words of the contract
}

// kind is a set of properties of a case, by which the suite chooses its runs.
type kind uint8

const (
	takes    kind = 1 << iota // it is about Take
	instead                   // of Do alone it asks in another way
	waits                     // it waits for the clock of the world
	compares                  // it compares by itself, as after calls side by side
)

// checks are all cases.
var checks = []check{
	// Additions and reads.
	{"missing reads as zero", missingIsZero, 0,
		"Span.Counts: filled in, every one; a bucket that is missing is 0"},
	{"counts are those after the addition", countsAfter, 0,
		"Slot.Count: filled in, zeroed first: what the bucket holds after the addition"},
	{"slots are answered in their places", slotsInPlace, 0,
		"Slot.Count belongs to its Slot, in whatever order they are given"},
	{"spans are answered in their places", spansInPlace, 0,
		"Span.Counts[i] is bucket First+i, of spans of any number, order and length, which may overlap"},
	{"an op adds and reads", addAndRead, compares,
		"additions and reads may happen in any order, each bucket by itself; with Ordered the reads came last"},
	{"taking back stops at zero", stopsAtZero, 0,
		"Op.N below zero takes back: a bucket stops at 0, and one that is not there stays away"},
	{"taking back tier by tier", tierByTier, compares,
		"what is taken back may be named in some tiers only; it must be gone when all tiers were named"},

	// Numbers of every size, keys and dates.
	{"numbers of every width", everyWidth, 0,
		"a bucket counts exactly, whatever it and its neighbours hold"},
	{"MaxCount and one more", maxCount, 0,
		"a bucket counts to MaxCount: an addition beyond is counter.ErrMaxCount, never a smaller number"},
	{"a key whose hits have left is not full", emptiedByTime, 0,
		"what no window reaches any more does not count against MaxCount"},
	{"keys do not meet", storedKeys, 0,
		"Op.Key: printable ASCII without spaces and braces, 1 to 200 bytes; a key counts by itself"},
	{"before 1970 and after 2038", anyDate, 0,
		"bucket numbers are any, below zero too, and a TTL is a duration, not a date"},
	{"many buckets at once", manyBuckets, 0,
		"Do reads all runs of Op.Read, however long, or returns an error"},
	{"a key that grows", grow, 0,
		"additions, reads and steps count exactly, however many buckets a key has"},

	// Lives of buckets.
	{"buckets live for their TTL", watched((*subject).livesAndGoes), waits,
		"Slot.TTL: how long the bucket must live from Op.Now on if it is created now; and not for ever"},
	{"long lives", longLives, waits,
		"Slot.TTL is a duration, up to 367 days and some"},

	// Callers side by side, and callers who give up.
	{"places are distinct", distinctPlaces, compares,
		"each addition is atomic: no two that succeed return the same place"},
	{"a crowd adds and takes back", inAndOut, compares,
		"each addition is atomic, and so is each taking back"},
	{"a crowd on many keys", manyKeys, compares,
		"a Store is used by many goroutines at once, and answers each what it has asked"},
	{"ordered reads come last", orderedReads, 0,
		"with Request.Ordered filled in, every bucket was read after all additions of the request; Do fills in false otherwise"},
	{"too late to begin", tooLate, 0,
		"when ctx is done or the Deadline has passed already, Do, Take, Forget and Forgotten return an error and send nothing"},
	{"calls cut short", cutShort, compares,
		"an error leaves only what its Slots say for certain, and takes nobody else's; no nil unless all was done"},
	{"the op is the caller's again", ownership, instead | compares,
		"op and all that it points to belong to the caller as soon as Do returns"},

	// Take.
	{"calls of a key go together", goTogether, instead,
		"equal calls that wait for one another take their places, each once, and give them back, each once"},
	{"racing calls up to n", racingUpTo, instead,
		"calls that take as many hits as have room take Max together, and never more"},
	{"a step is all or nothing", allOrNothing, takes,
		"if all windows have room for N, and it is no Peek, Take adds N to all tiers of every demand; otherwise it writes nothing"},
	{"steps against a model", againstModel, takes,
		"Take: Count, FreedBy, Newest and Allowed as documented, of the buckets from the one that holds Now-Reach on, without an upper end; each key of a step has its own N and its own ladder, and a soft key denies nobody and is added to only if it fits; Times: N of each key is added as often as all keys have room, up to Times, and Taken says how often; additions and takings back by Do count like its own"},

	// Labels.
	{"labels in any order", anyOrder, instead,
		"a call with an older label is answered exactly, or with ErrStaleLabel and nothing done; by AnyLabel it is answered"},

	// Forget.
	{"forgetting empties a key", forgetsAll, 0,
		"Forget sets all counts of the key to zero, of every tier and of any label, and touches no other key"},
	{"counting goes on after a Forget", countsOn, 0,
		"a hit that is added after a Forget counts, whatever its label"},
	{"a Forget is remembered", remembers, compares,
		"Forgotten is the newest Label that is remembered of the key, 0 if there is none"},
	{"a Forget is remembered as long as asked", watched((*subject).remembersFor), waits,
		"Forgetting.Remember: how long at least, from Now on"},
	{"forgetting in a crowd", forgetsInACrowd, compares,
		"Forget touches no other key, and leaves nothing that was there when it began"},

	// A whole Counter, by the atomic step of the store or by ticket.
	{"scripts", scripts, instead,
		"every answer to every script of Take, TakeAll, Peek, Charge, also below zero, Add, AddAt, Count, Series, Refund, Settle and Forget is what a log of all hits says, whatever the year"},
	{"40 racers for 7 places", herd, instead,
		promise.HerdRule},
	{"callers that differ", differ, instead,
		"callers with different limits and a different patience never exceed a limit that they share"},
	{"a lone caller", lone, instead,
		"RetryAfter is exact to the bucket: who comes back then is admitted, and who comes earlier is denied"},
	{"features of any bytes", promised(promise.Keys, false), instead, promise.Keys.Rule},
	{"denied hits are free", promised(promise.Denied, false), instead, promise.Denied.Rule},
	{"callers without a pause", promised(promise.Boundary, true), instead | waits, promise.Boundary.Rule},
	{"a caller who hangs up", hangUp, instead,
		"a call whose context is done is an error, and counts nothing if it was done before"},

	// Calls for several keys that differ, and a change of ladder.
	{"keys of one call differ", keysDiffer, instead,
		"each key of a call has its own n and its own ladder, may be soft, looked at, charged or credited, settled, or take up to n, and the verdict is that of an atomic store in the process"},
	{"credits race", creditsRace, instead,
		"no window loses more hits than credits say, or goes below zero, however they race"},
	{"settlements race", settlesRace, instead,
		"of racing settlements of a verdict one has an effect, and no more than Max settled hits are counted while no call uses more than it took"},
	{"a change of ladder", changeOfLadder, instead,
		"no window has more than Max while processes with a former ladder are replaced by processes with both, and those by processes with the new ladder, or back"},
}
