-- The sums and leaves of a root, for do.lua.

local function before(r, s, x)
  OPEN
  local at = x - origin
  local p = rank(s, '>I4', size, FIRST, at)
  local sum = unpack(f, s, p - w)
  if p < #s then
    local entry, upto = unpack('>I4' .. f, s, p)
    BEFORE
  end
  return sum
end

-- The value of the leaf that begins at position x of root r, of list s; false if the
-- root has none there.
local function leaf(r, s, x)
  OPEN
  local p = rank(s, '>I4', size, FIRST, x - origin)
  if p == FIRST and EDGED then
    p = p + size -- the edge can be in the leaf's stretch
  end
  local entry = p < #s and unpack('>I4', s, p) or 0
  local kind = entry % 8
  return kind > 0 and entry + origin < x + stretch and call('GET', LEAF)
end
