-- often returns how often n hits find room in what is left: once at least, and times at most.
local function often(times, n, left)
  if n == 0 or left >= n * times then
    return times
  end
  return math.max(1, (left - left % n) / n)
end

-- The position of the bucket in which root r counts hit number bound, which is hit
-- number need, at most, from the entry at byte p on. The list of v ends before byte
-- stop, and newest is the entry after it. The last three bits of the position have no
-- meaning.
local function holds(r, v, w, f, origin, newest, stop, bound, p, need)
  local g, size, from, lo, hi = f, 4 + w, p + 4, 0, (stop - p) / (4 + w)
  local last = hi
  if need <= hi then
    hi = need - 1 -- each entry has one hit at least
  end
  if hi > 0 and unpack(g, v, from + (hi - 1) * size) < bound then
    lo = hi -- and most have no more
  end
  SEARCH
  p = p + lo * size
  local entry = lo < last and unpack('>I4', v, p) or newest
  local x, kind = entry + origin, entry % 8
  if kind == 0 then
    return x
  end
  local wide, skip = WIDE, kind == 1 and 2 or 0
  bound = bound - unpack(f, v, p - w)
  v = call('GET', LEAF) or ''
  g, size, from = '>I' .. wide, skip + wide, 1 + skip
  lo, hi = 0, #v / size
  SEARCH
  if lo * size == #v then
    return x -- the leaf lacks its last bucket
  end
  return x - x % stretch + 8 * (kind == 1 and unpack('>I2', v, 1 + lo * size) or lo)
end
