-- The beginning of every script. docs/storage.md and layout.go have the format of a
-- root and its leaves; script.go has the words in capitals, which are expanded when the
-- script is built, and the files that stand for their name: search, before, drop, due.
--
-- Variables have the same meaning in all files:
--
--   r, s        name and value of a root
--   w, f        bytes of a sum in s, and their format
--   size        bytes of an entry of s
--   origin      the position that the positions in s count from
--   x, at       a position, and the same one counted from origin
--   p           the byte at which an entry of s begins
--   entry       position and kind of an entry: entry % 8 is the kind
--   kind        0 bucket, 1 sparse leaf, 2 to 4 dense leaf with sums of 2, 4, 7 bytes
--   wide        bytes of a sum in a leaf
--   slot        the number of a bucket in its leaf
--   stretch     positions of a leaf, of the root that is worked on
--   stale       the position before which no bucket is needed
--
-- Lua in Redis hashes every byte of every string that is made, so a script neither
-- reads nor rebuilds what it does not need; and to make a function costs as much as to
-- call it, so a script makes the functions that few calls need where they are needed.

local unpack, pack, call = struct.unpack, struct.pack, redis.call
local stretch

-- The byte at which the first entry of list v stands whose number in format g is not
-- below bound. Entries have the given size; the list begins at byte from.
local function rank(v, g, size, from, bound)
  local lo, hi = 0, (#v - from + 1) / size
  if hi == 0 or unpack(g, v, #v - size + 1) < bound then
    return #v + 1
  end
  SEARCH
  return from + lo * size
end
