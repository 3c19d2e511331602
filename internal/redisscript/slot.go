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
		crc = crc<<4 ^ crcOf[crc>>12^uint16(key[i]>>4)]
		crc = crc<<4 ^ crcOf[crc>>12^uint16(key[i]&15)]
	}
	return crc
}

// crcOf is the effect of four bits on CRC-16/XMODEM.
var crcOf = [16]uint16{
	0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
	0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
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
