package memory

import "hash/maphash"

// is tells whether e is the entry of key.
func (e *entry) is(key []byte) bool {
	switch n := len(e.name); {
	case len(key) <= n:
		return int(e.length) == len(key) && string(e.name[:len(key)]) == string(key)
	case len(key) <= inEntry:
		return int(e.length) == len(key) && string(e.name[:]) == string(key[:n]) && string(e.rest[:len(key)-n]) == string(key[n:])
	default:
		return e.length == isLong && *e.long == string(key)
	}
}

// key appends the key to dst.
func (e *entry) key(dst []byte) []byte {
	if e.length == isLong {
		return append(dst, *e.long...)
	}
	dst = append(dst, e.name[:min(int(e.length), len(e.name))]...)
	return append(dst, e.rest[:max(0, int(e.length)-len(e.name))]...)
}

func (e *entry) keyLen() int {
	if e.length == isLong {
		return len(*e.long)
	}
	return int(e.length)
}

// hash is that of the key of e.
func (s *Store) hash(e *entry) uint64 {
	if int(e.length) <= len(e.name) {
		return maphash.Bytes(s.seed, e.name[:e.length])
	}
	var buf [256]byte
	return maphash.Bytes(s.seed, e.key(buf[:0]))
}
