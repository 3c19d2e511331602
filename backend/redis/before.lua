-- How many hits root r, of value s, has counted before position x. What a leaf
-- that is gone has held counts from its last bucket on: too long, never too
-- short. A Take does the same inline.
local function before(r, s, x)
  local w, origin = unpack('>I1I6', s)
  local f, size, at = '>I' .. w, 4 + w, x - origin
  local p = rank(s, '>I4', size, 8 + w, at)
  local sum, entry = unpack(f, s, p - w), p < #s and unpack('>I4', s, p) or 0
  local kind = entry % 8
  if kind == 0 or entry - entry % LEAF >= at then
    return sum
  end
  local name, slot, under = r .. ':' .. (x - x % LEAF - BIAS) / LEAF + kind / 10, x % LEAF / 8, 0
  if kind == 1 then
    local v = call('GET', name)
    local q = v and rank(v, '>I2', 4, 1, slot) or 1
    under = q > 1 and unpack('>I2', v, q - 2) or 0
  else
    local wide = kind == 2 and 2 or kind == 3 and 4 or 7
    local v = call('GETRANGE', name, (slot - 1) * wide, slot * wide - 1)
    under = #v == wide and unpack('>I' .. wide, v) or 0
  end
  if under > unpack(f, s, p + 4) - sum then
    error('ABACUS foreign', 0)
  end
  return sum + under
end

-- Value of the leaf that starts at position x of root r, of value s; false if the
-- root has none there.
local function leaf(r, s, x)
  local w, origin = unpack('>I1I6', s)
  local p = rank(s, '>I4', 4 + w, 8 + w, x - origin)
  if p == 8 + w and unpack('>I' .. w, s, p + 4) == unpack('>I' .. w, s, 8) then
    p = p + 4 + w -- the edge can be in the leaf's stretch
  end
  local entry = p < #s and unpack('>I4', s, p) or 0
  local kind = entry % 8
  return kind > 0 and entry + origin < x + LEAF and call('GET', r .. ':' .. (x - BIAS) / LEAF + kind / 10)
end
