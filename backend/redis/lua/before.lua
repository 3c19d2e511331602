-- BEFORE: sum, the hits before entry, becomes the number of hits that root r has counted
-- before position x. upto is the sum with the hits of entry. The hits of a missing
-- leaf count from its last bucket on: too long, never too short.
local kind = entry % 8
if kind > 0 and entry - entry % stretch < at then
  local slot, under = at % stretch / 8, 0
  if kind == 1 then
    local v = call('GET', LEAF)
    local q = v and rank(v, '>I2', 4, 1, slot) or 1
    under = q > 1 and unpack('>I2', v, q - 2) or 0
  else
    local wide = WIDE
    local v = call('GETRANGE', LEAF, (slot - 1) * wide, slot * wide - 1)
    under = v ~= '' and unpack('>I' .. wide, v) or 0
  end
  if under > upto - sum then
    error('ABACUS foreign', 0)
  end
  sum = sum + under
end
