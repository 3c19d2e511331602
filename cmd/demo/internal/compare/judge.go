package compare

import (
	"time"

	"github.com/abacus-go/abacus/counter"
	"github.com/abacus-go/abacus/internal/testkit/oracle"
)

// Hit is one event of a key, and what an algorithm decided about it.
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

// Judge measures decisions about the hits of one key, in the order in which they
// were taken. The algorithm's own history decides which is right: a hit
// at t is to be admitted if fewer than Max that were admitted before are at t-Per
// or later. As in package oracle, a hit that is exactly Per old still counts, and
// so does one that came earlier with a later stamp.
func Judge(hits []Hit, limit counter.Limit) Measures {
	var log oracle.Log
	return judge(&log, hits, limit)
}

// judge leaves in log what was admitted.
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
