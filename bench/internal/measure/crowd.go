package measure

import (
	"fmt"
	"time"
)

// Crowd is the measurement of callers at the same time, round after round.
type Crowd struct {
	Rate           Series // thousands of calls a second
	half, most     Series // of the calls, how long they took, us
	server, client Series // cores in use
}

// Run lets so many callers share calls, and returns the first error of hit.
// server is the processor time that the server has spent until now.
func (c *Crowd) Run(calls Keys, callers int, server func() time.Duration, hit func(key string) error) error {
	waits := make(Series, calls.Len())
	ours, theirs := CPU(), server()
	spent, _, err := Parallel(calls.Len(), callers, func(i int) error {
		began := time.Now()
		err := hit(calls.At(i))
		waits[i] = float64(time.Since(began).Nanoseconds()) / 1e3
		return err
	})
	if err != nil {
		return err
	}
	c.client = append(c.client, (CPU()-ours).Seconds()/spent.Seconds())
	c.server = append(c.server, (server()-theirs).Seconds()/spent.Seconds())
	c.Rate = append(c.Rate, float64(calls.Len())/spent.Seconds()/1e3)
	c.half, c.most = append(c.half, waits.Median()), append(c.most, waits.Quantile(0.99))
	return nil
}

// CrowdTable is an empty table of crowds.
func CrowdTable() Table {
	return Table{Head: []string{"callers", "1,000 calls/s", "wait, half", "wait, 99 %", "server", "client"}}
}

// Row is c with so many callers, in a [CrowdTable].
func (c *Crowd) Row(callers int) []string {
	return []string{fmt.Sprint(callers), c.Rate.Spread(), Num(c.half.Median()), Num(c.most.Median()), Num(c.server.Median()), Num(c.client.Median())}
}
