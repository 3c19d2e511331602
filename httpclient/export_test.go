package httpclient

// MaxHolds and PlacePatience are for the tests.
const (
	MaxHolds      = maxHolds
	PlacePatience = placePatience
)

// Holds is the number of hosts and partitions that t remembers.
func (t *Transport) Holds() int { return len(t.holds.of) }
