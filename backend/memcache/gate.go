package memcache

// gate bounds the requests under way: one token for each goroutine that may
// have one.
type gate chan struct{}

func (g gate) enter() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g gate) leave() { <-g }
