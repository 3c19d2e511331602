package redisscript

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"
)

// Slots is the number of hash slots of a Cluster.
const Slots = 16384

// Slot returns the hash slot of a key in a Cluster: CRC-16/XMODEM modulo Slots, as
// the Redis Cluster specification says.
func Slot[T string | []byte](key T) int { return int(crc16(0, key) % Slots) }

func crc16[T string | []byte](crc uint16, key T) uint16 {
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
	}
	return crc
}

// Marker returns the stored key of a marker, which remembers the label of a Forget of
// key on the key's server, under a name that does not show the feature. The name has a hash
// tag of its own: the key's prefix, "!", and four bytes that bring the tag into the key's
// slot. A digest of the key follows. An ACL for the prefix covers the name.
func Marker(key string) string {
	tag := key[:strings.IndexByte(key, ':')+1] + "!"
	// CRC is linear: the CRC of tag and four bytes is the CRC of tag and four zero
	// bytes, xor the CRC of the four bytes alone.
	want := crc16(0, key) ^ crc16(crc16(0, tag), "\x00\x00\x00\x00")
	digest := sha256.Sum256([]byte(key))
	fill := fills()[want%Slots]
	return "{" + tag + string(fill[:]) + "}" + base64.RawURLEncoding.EncodeToString(digest[:])
}

// fills are four letters or digits for each CRC modulo Slots.
var fills = sync.OnceValue(func() *[Slots][4]byte {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyz"
	all := new([Slots][4]byte)
	for i, found := 0, 0; found < Slots; i++ {
		var fill [4]byte
		for j, n := 0, i; j < len(fill); j, n = j+1, n/len(letters) {
			fill[j] = letters[n%len(letters)]
		}
		if at := &all[Slot(fill[:])]; at[0] == 0 {
			*at = fill
			found++
		}
	}
	return all
})
