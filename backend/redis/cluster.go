package redis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/abacus-go/abacus/backend"
)

const (
	slots         = 16384 // of a Cluster
	clusterClocks = 256   // kept for all slots
)

// Together tells whether a single server, or of a Cluster a single slot, holds all
// keys.
func (s *sums) Together(keys []backend.TakeKey) bool {
	if !s.server.Cluster() {
		return true
	}
	for i := range keys {
		if slot(keys[i].Key) != slot(keys[0].Key) {
			return false
		}
	}
	return true
}

// ServerOf is described in [backend.Placer]: of a Cluster the master of the slot, as
// far as the client knows.
func (s *base) ServerOf(key string) string {
	cluster, is := s.server.Client().(*redis.ClusterClient)
	if !is {
		return ""
	}
	node, err := cluster.MasterForKey(asked, rootTag(key))
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// asked is a context that has ended, for questions that ask no server.
var asked = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// slot returns the hash slot of a key in a Cluster: CRC-16/XMODEM modulo 16384, as
// the Redis Cluster specification says.
func slot[T string | []byte](key T) int { return int(crc16(0, key) % slots) }

func crc16[T string | []byte](crc uint16, key T) uint16 {
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc
}

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
