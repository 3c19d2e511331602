package compare

import (
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
)

// Hit is an event of a key, with an algorithm's decision.
type Hit struct {
	At       time.Time
	Admitted bool
}

// judge adds decisions about the hits of a key, in the order of the decisions, to the
// measures of a, leaves the admitted hits in log, and returns how many of them are in the
// fullest window of length Per, both ends included. A decision is right or wrong by
// the algorithm's own history: a hit at t is to be admitted if fewer than Max
// earlier admitted hits are at t-Per or later. As in package oracle, a hit exactly
// Per old still counts, and so does an earlier hit with a later stamp.
func (a *Algorithm) judge(log *oracle.Log, hits []Hit, limit counter.Limit) (worst int64) {
	log.Reset()
	limits := counter.Limits{limit}
	for _, hit := range hits {
		right := oracle.Judge{}.Exact(log, hit.At, 1, limits)
		switch {
		case hit.Admitted && !right:
			a.WronglyAdmitted++
		case !hit.Admitted && right:
			a.WronglyDenied++
		}
		if hit.Admitted {
			log.Add(hit.At, 1)
		}
	}
	a.Admitted += log.Total()
	return log.Worst(limit.Per)
}
