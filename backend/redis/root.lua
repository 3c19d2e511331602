-- A root and its leaves; how they are laid out stands in layout.go. A position is
-- eight times the biased number of a bucket. A leaf stands at its last bucket,
-- plus its kind: 1 sparse, 2 to 4 dense with sums of 2, 4, 7 bytes. Its name ends
-- with the number of its stretch and its kind, as 492335.1: so a leaf is never
-- read as one of another kind, whatever else has moved its value here.
--
-- What is stale is dropped from the front of a root. An entry without hits is left
-- then, the edge, at the last bucket that was dropped: what is asked from there or
-- from before cannot be told any more.
--
-- Lua in Redis hashes every byte of every string that is made, so what is not
-- needed is neither read nor rebuilt; and to make a function costs as much as to
-- call it, so what few calls need is made where it is needed.

local BACK, MANY, FEW, SPARSE, MOST = 3456000000, 128, 12, 1200, 9007199254740991
local LEAF -- positions of a stretch of time that can have a leaf, of the root at hand
local unpack, pack, call = struct.unpack, struct.pack, redis.call

-- Where in list v the first entry stands whose position, in format pf, is not
-- below x. Entries have the given size; the list starts at byte from.
local function rank(v, pf, size, from, x)
  local lo, hi = 0, (#v - from + 1) / size
  if hi == 0 or unpack(pf, v, #v - size + 1) < x then
    return #v + 1
  end
  while lo < hi do
    local mid = lo + hi
    mid = (mid - mid % 2) / 2
    if unpack(pf, v, from + mid * size) < x then
      lo = mid + 1
    else
      hi = mid
    end
  end
  return from + lo * size
end
