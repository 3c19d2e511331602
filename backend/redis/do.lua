-- Adds n hits to buckets, or takes them back, and says what buckets then hold.
-- KEYS: roots. ARGV[1]: n, whether it is taken back (4 more: whatever was
-- dropped), until when it may be added in
-- microseconds of this server's clock, and for each root positions of a leaf, its
-- time to live in ms, the position of what is stale, that where the first of all
-- buckets begins that are to be changed, the positions to change, the start and
-- the end of each bucket to be told, and, if its value is to be read, positions in
-- the leaves to be read with it.
-- Returns counts and values in this order: all counts, all values, and if hits
-- were added the time. If it is too late to add them: the byte 2 and the time.

local program = ARGV[1]
local n, back, due, at = unpack('>I7I1I7', program)
local any = back > 3
if any then
  back = back - 4
end
local adds, roots, place, time = n > 0 and back == 0, {}, at, 0
for i = 1, #KEYS do
  local s = call('GET', KEYS[i])
  if s then
    local w = string.byte(s)
    if w ~= 2 and w ~= 4 and w ~= 7 or #s < 11 + 2 * w or (#s - 7 - w) % (4 + w) ~= 0 then
      return redis.error_reply('ABACUS foreign')
    end
  end
  roots[i] = s or nil
  if adds then
    -- All groups have room, or none is added to.
    local leaf, ttl, stale, oldest, changes, tells, whole, leaves
    leaf, ttl, stale, oldest, changes, place = unpack('>I2I6I6I6I2', program, place)
    tells, place = unpack('>I2', program, place + 6 * changes)
    whole, leaves, place = unpack('>I1I2', program, place + 12 * tells)
    place = place + 6 * leaves
    if s and changes > 0 then
      local w, origin = unpack('>I1I6', s)
      local f = '>I' .. w
      local total, base = unpack(f, s, #s - w + 1), unpack(f, s, 8)
      if not any and base == unpack(f, s, 12 + w) and oldest - origin <= unpack('>I4', s, 8 + w) then
        -- Of a bucket that is the sum of finer ones, some were dropped.
        return redis.error_reply('ABACUS stale')
      end
      if total - base + n * changes > MOST then
        base = unpack(f, s, rank(s, '>I4', 4 + w, 8 + w, stale - origin) - w)
        if total - base + n * changes > MOST then
          return redis.error_reply('ABACUS full')
        end
      end
    end
  end
end
if adds and due > 0 then
  time = call('TIME')
  time = time[1] * 1000000 + time[2]
  if time > due then
    return '\2' .. pack('>I7', time)
  end
end

local change, counts, values = n > 0 and slowly(), {}, {}
for i = 1, #KEYS do
  local r, s = KEYS[i], roots[i]
  local ttl, stale, oldest, changes, tells, whole, leaves, x, to
  LEAF, ttl, stale, oldest, changes, at = unpack('>I2I6I6I6I2', program, at)
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
    values[#values + 1] = s and leaf(r, s, x) or false
  end
end
for _, v in ipairs(values) do
  counts[#counts + 1] = v
end
if adds then
  counts[#counts + 1] = time
end
return counts
