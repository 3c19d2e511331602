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

// Measures are the counts of an algorithm's decisions about one key.
type Measures struct {
	Admitted        int64
	Worst           int64 // admitted in the fullest window of length Per, both ends included
	WronglyAdmitted int64
	WronglyDenied   int64
}

// judge measures decisions about the hits of a key, in the order of the
// decisions, and leaves the admitted hits in log. A decision is right or wrong by
// the algorithm's own history: a hit at t is to be admitted if fewer than Max
// earlier admitted hits are at t-Per or later. As in package oracle, a hit exactly
// Per old still counts, and so does an earlier hit with a later stamp.
func judge(log *oracle.Log, hits []Hit, limit counter.Limit) (m Measures) {
	log.Reset()
	limits := counter.Limits{limit}
	for _, hit := range hits {
		right := oracle.Judge{}.Exact(log, hit.At, 1, limits)
		switch {
		case hit.Admitted && !right:
			m.WronglyAdmitted++
		case !hit.Admitted && right:
			m.WronglyDenied++
		}
		if hit.Admitted {
			log.Add(hit.At, 1)
		}
	}
	m.Admitted, m.Worst = log.Total(), log.Worst(limit.Per)
	return m
}

func (m *Measures) add(o Measures) {
	m.Admitted += o.Admitted
	m.Worst = max(m.Worst, o.Worst)
	m.WronglyAdmitted += o.WronglyAdmitted
	m.WronglyDenied += o.WronglyDenied
}
