-- The beginning of every program. docs/storage.md and layout.go have the format of a
-- root and its leaves; script.go has the words in capitals, which are expanded when the
-- program is built, and the files that stand for their name: search, before, drop, due.
--
-- Variables have the same meaning in all files:
--
--   r, v        name and value of a root
--   s           the root as a list: width, origin, the sum before the first entry, and
--               all entries, the newest last
--   w, f        bytes of a sum, and their format
--   size        bytes of an entry
--   origin      the position that all stored positions count from
--   x, at       a position, and the same one counted from origin
--   p           the byte at which an entry begins
--   entry       position and kind of an entry: entry % 8 is the kind
--   kind        0 bucket, 1 sparse leaf, 2 to 4 dense leaf with sums of 2, 4, 7 bytes
--   wide        bytes of a sum in a leaf
--   slot        the number of a bucket in its leaf
--   stretch     positions of a leaf, of the root that is worked on
--   stale       the position before which no bucket is needed
--
-- Lua in Redis hashes every byte of every string that is made, so a program neither
-- reads nor rebuilds what it does not need. A number among the arguments of a command
-- costs as much as the command, so arguments are strings. To make a function costs as
-- much as to call it, so a script makes the functions that few calls need where they
-- are needed.

local spread, unpack, pack, call, byte, sub = unpack, struct.unpack, struct.pack, redis.call, string.byte, string.sub
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

-- whole returns value v of a root with all fields of the head and room for an entry at
-- least. A value of another shape is an error.
local function whole(v)
  local w = byte(v)
  if w ~= 2 and w ~= 4 and w ~= 7 then
    error('ABACUS foreign', 0)
  elseif #v == SHORT then
    return v .. string.rep('\0', 8 + 4 * w)
  elseif #v < HEAD + 4 + w or (#v - HEAD) % (4 + w) ~= 0 or #v < HEAD + unpack('>I3', v, SHORT + 2) * (4 + w) then
    error('ABACUS foreign', 0)
  end
  return v
end

-- roomFor returns the number of entries to leave room for after count others: a
-- sixteenth and four at least, and what fits into the memory that Redis then takes. The
-- allocator has four sizes between a power of two and the next.
local function roomFor(count, w)
  if count < 8 then
    return count == 0 and 1 or 0
  elseif count >= LONG then
    return 0
  end
  local head, size = HEAD + 6, 4 + w
  local need, unit = head + (count + 4 + count / 16) * size, 16
  while need > 8 * unit do
    unit = 2 * unit
  end
  local room = (need + -need % unit - head) / size - count
  return room - room % 1
end

-- list returns the root of value v as a list.
local function list(v)
  v = whole(v)
  local w = byte(v)
  return sub(v, 1, 7) .. sub(v, HEAD + 1 - w, HEAD + unpack('>I3', v, SHORT + 2) * (4 + w)) .. sub(v, 8, SHORT)
end
