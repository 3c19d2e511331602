package backendtest

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/abacus-go/abacus/backend"
	"github.com/abacus-go/abacus/internal/testkit/race"
	"github.com/stretchr/testify/require"
)

// bites names the cases that must find each mistake of a server; "Do" before a name
// is for the case with Take hidden.
var bites = map[string][]string{
	"missing is left as it stood":                                  {"missing reads as zero"},
	"answers the count before":                                     {"counts are those after the addition"},
	"answers no counts":                                            {"counts are those after the addition"},
	"counts are not zeroed first":                                  {"taking back stops at zero", "too late to begin"},
	"slots are answered finest first":                              {"slots are answered in their places"},
	"spans are answered oldest first":                              {"spans are answered in their places"},
	"a bucket is answered once":                                    {"spans are answered in their places"},
	"reads first, and says the reads came last":                    {"an op adds and reads"},
	"drops the coarsest addition":                                  {"an op adds and reads", "Do scripts", "Do keys of one call differ", "Do settlements race"},
	"taking back goes below zero":                                  {"taking back stops at zero", "Do credits race"},
	"taking back from nothing is an error":                         {"taking back stops at zero"},
	"taking back creates":                                          {"taking back stops at zero"},
	"taking back too much is ignored":                              {"taking back stops at zero"},
	"takes back all tiers or none":                                 {"taking back tier by tier"},
	"counts in 32 bits":                                            {"numbers of every width"},
	"counts in floats of 32 bits":                                  {"numbers of every width"},
	"wraps at the end":                                             {"MaxCount and one more"},
	"stays at the end":                                             {"MaxCount and one more"},
	"starts again at the end":                                      {"MaxCount and one more"},
	"a step beyond MaxCount is no error":                           {"MaxCount and one more"},
	"long keys are cut":                                            {"keys do not meet", "Do features of any bytes"},
	"keys in lower case":                                           {"keys do not meet", "Do features of any bytes"},
	"no separator in names":                                        {"keys do not meet"},
	"a colon in names":                                             {"keys do not meet"},
	"no bucket below zero":                                         {"before 1970 and after 2038", "Do scripts"},
	"bucket numbers of 32 bits":                                    {"before 1970 and after 2038"},
	"a TTL is a date by the caller's clock":                        {"before 1970 and after 2038", "Do scripts"},
	"a TTL begins with the bucket":                                 {"before 1970 and after 2038", "Do scripts"},
	"reads a thousand buckets at most":                             {"many buckets at once"},
	"a large key loses its oldest":                                 {"a key that grows"},
	"lives for ever":                                               {"buckets live for their TTL"},
	"lives half as long":                                           {"buckets live for their TTL"},
	"lives as long as its width":                                   {"buckets live for their TTL", "long lives"},
	"lives a tenth as long":                                        {"callers without a pause", "Do callers without a pause"},
	"a TTL above 30 days is a date":                                {"long lives"},
	"a TTL in milliseconds of 32 bits":                             {"long lives"},
	"adds without a lock":                                          {"places are distinct", "Do 40 racers for 7 places", "Do callers that differ"},
	"takes back without a lock":                                    {"a crowd adds and takes back"},
	"reads first, and says ordered":                                {"ordered reads come last"},
	"reads first, and leaves Ordered as it stood":                  {"ordered reads come last"},
	"answers one what another has asked":                           {"a crowd on many keys"},
	"no error under a cancelled context":                           {"too late to begin"},
	"sends under a cancelled context":                              {"too late to begin"},
	"sends after the deadline":                                     {"too late to begin"},
	"no error when cut short":                                      {"calls cut short"},
	"sends again what had no answer":                               {"calls cut short"},
	"takes back what had no answer":                                {"calls cut short"},
	"what is cut short is dropped without an error":                {"calls cut short"},
	"what is cut short is dropped, and its slots say it was added": {"calls cut short", "Do a caller who hangs up"},
	"reads the op later":                                           {"the op is the caller's again"},
	"writes to the op later":                                       {"the op is the caller's again"},
	"keeps the key of a step":                                      {"the op is the caller's again"},
	"a denial adds":                                                {"a step is all or nothing", "scripts", "denied hits are free"},
	"a peek adds":                                                  {"a step is all or nothing"},
	"only the first window is looked at":                           {"a step is all or nothing", "scripts"},
	"only the first key is looked at":                              {"a step is all or nothing", "keys of one call differ", "a change of ladder"},
	"a step adds to the finest tier alone":                         {"a step is all or nothing"},
	"counts after the step":                                        {"steps against a model"},
	"the oldest bucket is the one to leave":                        {"steps against a model", "scripts"},
	"now is always the newest":                                     {"steps against a model"},
	"nothing is the newest":                                        {"steps against a model"},
	"a window that reaches too short":                              {"steps against a model", "scripts"},
	"the oldest bucket leaves with its start":                      {"steps against a model", "scripts", "a lone caller"},
	"a limit keeps its first reach":                                {"steps against a model", "scripts"},
	"a window closed at now":                                       {"steps against a model", "scripts"},
	"looks first and adds later":                                   {"40 racers for 7 places"},
	"a step for several times is made once":                        {"steps against a model"},
	"a step is made as often as asked":                             {"steps against a model", "racing calls up to n", "calls of a key go together"},
	"a step tells the times that were asked":                       {"steps against a model", "keys of one call differ"},
	"all keys have the n of the first":                             {"steps against a model", "keys of one call differ"},
	"all keys have the ladder of the first":                        {"steps against a model"},
	"a soft key denies":                                            {"steps against a model"},
	"a soft key is added to without room":                          {"steps against a model", "keys of one call differ"},
	"a soft key is never added to":                                 {"steps against a model"},
	"MaxCount without a name":                                      {"MaxCount and one more"},
	"what has left counts against MaxCount":                        {"a key whose hits have left is not full"},
	"drops by label, and does not say so":                          {"labels in any order", "Do labels in any order"},
	"drops by label, and reads what is left":                       {"labels in any order", "Do labels in any order"},
	"drops by label, and a stale addition counts":                  {"labels in any order", "Do labels in any order"},
	"drops by label, and AnyLabel is stale too":                    {"labels in any order", "Do labels in any order"},
	"drops by label, and the newest is stale":                      {"labels in any order", "Do labels in any order"},
	"counts the past as the present":                               {"scripts", "Do scripts"},
	"counts the past twice as old":                                 {"scripts", "Do scripts"},
	"a late bucket lives as long as is left of its width":          {"scripts", "Do scripts"},
	"forgets the finest tier alone":                                {"forgetting empties a key", "counting goes on after a Forget", "forgetting in a crowd"},
	"forgets the coarsest tier alone":                              {"forgetting empties a key", "counting goes on after a Forget"},
	"forgets what is not ahead":                                    {"forgetting empties a key"},
	"forgets a thousand buckets":                                   {"forgetting empties a key"},
	"forgets the neighbours":                                       {"forgetting empties a key"},
	"forgets on a copy":                                            {"forgetting in a crowd"},
	"forgets too late, and says so":                                {"too late to begin"},
	"hits before the label of a Forget do not count":               {"counting goes on after a Forget"},
	"remembers seconds":                                            {"a Forget is remembered"},
	"remembers in floats":                                          {"a Forget is remembered"},
	"remembers nothing before 1970":                                {"a Forget is remembered"},
	"remembers the last Forget":                                    {"a Forget is remembered"},
	"remembers for all keys":                                       {"a Forget is remembered", "forgetting empties a key"},
	"remembers half as long":                                       {"a Forget is remembered as long as asked"},
	"remembers in milliseconds of 32 bits":                         {"a Forget is remembered as long as asked"},
	"a Remember above 30 days is a date":                           {"a Forget is remembered as long as asked"},
	"an older label is remembered for less":                        {"a Forget is remembered as long as asked"},
}

// races are the mistakes that the race detector finds. With the detector they
// cannot be tried: the detector fails whatever test is running.
var races = map[string]bool{"reads the op later": true, "writes to the op later": true, "keeps the key of a step": true}

func find(t testing.TB, name string) check {
	for _, c := range checks {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("no case %q", name)
	return check{}
}

// Every mistake is found by the cases about the mistake, and every case finds a
// mistake.
func TestTheSuiteBites(t *testing.T) {
	bitten := map[string]bool{}
	for fault, names := range bites {
		for _, name := range names {
			hide := false
			if len(name) > 3 && name[:3] == "Do " {
				name, hide = name[3:], true
			}
			bitten[name] = true
			c := find(t, name)
			if race.On && races[fault] {
				continue
			}
			bite := func(t *testing.T) {
				var err error
				for few := 12; err == nil && few > 0; few-- { // a race may not come to pass, least of all on a busy machine
					var store backend.Store = newServer(fault)
					if hide {
						store = struct{ backend.Store }{store}
					}
					err = c.hold(store, max(1, few-4), nil) // few rounds first, then all
				}
				require.Error(t, err, "the case %q does not see it", c.name)
				require.Contains(t, err.Error(), "rule: "+c.rule)
			}
			t.Run(fault+"/"+name, func(t *testing.T) {
				t.Parallel()
				if c.is&waits != 0 { // for a clock: in a bubble that takes no time
					synctest.Test(t, bite)
				} else {
					bite(t)
				}
			})
		}
	}
	for _, c := range checks {
		require.True(t, bitten[c.name], "nothing is known that case %q would find", c.name)
	}
}

// The store without a mistake passes, as it is and with Take hidden.
func TestTheUnbrokenPass(t *testing.T) {
	Run(t, func(testing.TB) backend.Store { return newServer("") })
}

// A server that drops by its callers' labels passes too, if the server reports the
// labels of which nothing is known any more.
func TestWhoDropsAndSaysSoPasses(t *testing.T) {
	store := newServer("drops by label")
	require.NoError(t, find(t, "labels in any order").hold(store, 1, nil))
	require.NoError(t, find(t, "labels in any order").hold(struct{ backend.Store }{store}, 1, nil))
	require.NotEmpty(t, store.dropped)
}

// Of Do alone a store with an atomic step is asked again by all cases of a Counter.
func TestFormsRepeatNothing(t *testing.T) {
	s := newServer("")
	all := forms(s)
	require.Len(t, all, 2)
	var again []string
	for _, c := range all[1].cases {
		again = append(again, c.name)
	}
	require.Subset(t, again, []string{"scripts", "40 racers for 7 places", "a lone caller", "a caller who hangs up"})
	require.NotContains(t, again, "taking back stops at zero")
	require.Len(t, forms(backend.FromDo(s.Do)), 1)
}

// Every mistake of an Erase is found by the cases that look into the server, and
// the server without a mistake passes.
func TestEraseBites(t *testing.T) {
	Erase(t, func(testing.TB) (backend.Store, Contents) {
		s := newServer("")
		return s, s.contents
	})
	for fault, names := range map[string][]string{
		"erases as it forgets":          {"erasing a key", "erasing after a day", "erasing by a Counter"},
		"erases what counts":            {"erasing a key", "erasing by a Counter"},
		"erases what is not old":        {"erasing after a day"},
		"erases the neighbours":         {"erasing a key"},
		"erases, and remembers by key":  {"erasing a key", "erasing after a day", "erasing by a Counter"},
		"erases, and does not remember": {"erasing a key"},
	} {
		for _, e := range erasures {
			if !slices.Contains(names, e.name) {
				continue
			}
			t.Run(fault+"/"+e.name, func(t *testing.T) {
				s := newServer(fault)
				err := e.hold(s, 1, s.contents)
				require.Error(t, err)
				require.Contains(t, err.Error(), "rule: "+e.rule)
			})
		}
	}
}
