-- The position of the bucket in which root r counts hit number bound, which is hit
-- number need, at most, from the entry at byte p on. The last three bits of the
-- position have no meaning.
local function holds(r, s, w, f, origin, bound, p, need)
  local v, g, size, from, lo, hi = s, f, 4 + w, p + 4, 0, (#s - p + 1) / (4 + w) - 1
  if need <= hi then
    hi = need - 1 -- each entry has one hit at least
  end
  SEARCH
  p = p + lo * size
  local entry = unpack('>I4', s, p)
  local x, kind = entry + origin, entry % 8
  if kind == 0 then
    return x
  end
  local wide, skip = WIDE, kind == 1 and 2 or 0
  v, bound = call('GET', LEAF) or '', bound - unpack(f, s, p - w)
  g, size, from = '>I' .. wide, skip + wide, 1 + skip
  lo, hi = 0, #v / size
  SEARCH
  if lo * size == #v then
    return x -- the leaf lacks its last bucket
  end
  return x - x % stretch + 8 * (kind == 1 and unpack('>I2', v, 1 + lo * size) or lo)
end
