-- Position of the bucket in which root r counts hit number x, which is hit number
-- need, at most, from the entry at byte p on.
local function holds(r, s, w, f, origin, x, p, need)
  local size = 4 + w
  local lo, hi = 0, (#s - p + 1) / size - 1
  if need <= hi then
    hi = need - 1 -- each entry has one hit at least
  end
  while lo < hi do
    local mid = lo + hi
    mid = (mid - mid % 2) / 2
    if unpack(f, s, p + mid * size + 4) < x then
      lo = mid + 1
    else
      hi = mid
    end
  end
  p = p + lo * size
  local entry = unpack('>I4', s, p)
  local kind = entry % 8
  entry = entry - kind + origin
  if kind == 0 then
    return entry
  end
  local start = entry - entry % LEAF
  local v = call('GET', r .. ':' .. (start - BIAS) / LEAF + kind / 10) or ''
  local wide = kind < 3 and 2 or kind == 3 and 4 or 7
  local g, skip = '>I' .. wide, kind == 1 and 2 or 0
  x = x - unpack(f, s, p - w)
  lo, hi, size = 0, #v / (skip + wide), skip + wide
  while lo < hi do
    local mid = lo + hi
    mid = (mid - mid % 2) / 2
    if unpack(g, v, 1 + mid * size + skip) < x then
      lo = mid + 1
    else
      hi = mid
    end
  end
  if lo * size == #v then
    return entry -- the leaf lacks its last bucket
  end
  return start + 8 * (kind == 1 and unpack('>I2', v, 1 + lo * size) or lo)
end
