package other

// Limit is what bounds it.
type Limit struct {
	Max int // how many of those that it counts there may be in one that it reads, this one or some of the others
}

func (l Limit) full(n int) bool {
	return n > l.Max // it is those that are more than that
}
