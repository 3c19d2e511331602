-- Position of the bucket in which root r counts hit number x.
local function holds(r, s, w, f, origin, x)
  -- Where in list v the first entry stands whose sum of w bytes is at least x.
  local function reach(v, w, size, from, x)
    local f, lo, hi = '>I' .. w, 0, (#v - from + 1) / size
    while lo < hi do
      local mid = lo + hi
      mid = (mid - mid % 2) / 2
      if unpack(f, v, from + mid * size + size - w) < x then
        lo = mid + 1
      else
        hi = mid
      end
    end
    return from + lo * size
  end
  local p = reach(s, w, 4 + w, 8 + w, x)
  local entry = unpack('>I4', s, p)
  local kind = entry % 8
  entry = entry - kind + origin
  if kind > 0 then
    local start = entry - entry % LEAF
    local v = call('GET', r .. ':' .. (start - BIAS) / LEAF) or ''
    local wide = kind < 3 and 2 or kind == 3 and 4 or 7
    local size = kind == 1 and 4 or wide
    local q = reach(v, wide, size, 1, x - unpack(f, s, p - w))
    if q < #v then
      return start + 8 * (kind == 1 and unpack('>I2', v, q) or (q - 1) / wide)
    end
  end
  return entry
end
