package redis

// slots of a Cluster, and how many clocks are kept for all of them.
const (
	slots         = 16384
	clusterClocks = 256
)

// crcTable is the effect of a byte on CRC-16/XMODEM.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

func crc16[T string | []byte](crc uint16, key T) uint16 {
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc
}

// slot is the hash slot of a key in a Cluster: CRC-16/XMODEM modulo 16384, as
// the Redis Cluster specification says.
func slot[T string | []byte](key T) int { return int(crc16(0, key) % slots) }
