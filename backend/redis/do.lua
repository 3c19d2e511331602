-- Adds n hits to buckets, or takes them back, and says what buckets then hold.
-- KEYS: roots. ARGV[1]: n, whether it is taken back, and for each root positions
-- of a leaf, its time to live in ms, the position of what is stale, the positions
-- to change, the start and the end of each bucket to be told, and, if its value
-- is to be read, positions in the leaves to be read with it.
-- Returns counts and values in this order: all counts, then all values.

local program = ARGV[1]
local n, back, at = unpack('>I7I1', program)
local change, counts, values = n > 0 and slowly(), {}, {}
for i = 1, #KEYS do
  local r, s = KEYS[i], call('GET', KEYS[i]) or nil
  if s then
    local w = string.byte(s)
    if w ~= 2 and w ~= 4 and w ~= 7 or #s < 11 + 2 * w or (#s - 7 - w) % (4 + w) ~= 0 then
      return redis.error_reply('ABACUS foreign')
    end
  end
  local ttl, stale, changes, tells, whole, leaves, x, to
  LEAF, ttl, stale, changes, at = unpack('>I2I6I6I2', program, at)
  for _ = 1, changes do
    x, at = unpack('>I6', program, at)
    s = change(r, s, x, back == 1 and -n or n, stale, ttl)
    if s == false then
      return redis.error_reply('ABACUS full')
    end
  end
  tells, at = unpack('>I2', program, at)
  for _ = 1, tells do
    x, to, at = unpack('>I6I6', program, at)
    counts[#counts + 1] = s and before(r, s, to) - before(r, s, x) or 0
  end
  whole, leaves, at = unpack('>I1I2', program, at)
  if whole == 1 then
    values[#values + 1] = s or false
  end
  for _ = 1, leaves do
    x, at = unpack('>I6', program, at)
    values[#values + 1] = call('GET', r .. ':' .. (x - x % LEAF - BIAS) / LEAF) or false
  end
end
for _, v in ipairs(values) do
  counts[#counts + 1] = v
end
return counts
