local spread, unpack, pack, call, byte, sub = unpack, struct.unpack, struct.pack, redis.call, string.byte, string.sub
local stretch
local function rank(v, g, size, from, bound)
  local lo, hi = 0, (#v - from + 1) / size
  if hi == 0 or unpack(g, v, #v - size + 1) < bound then
    return #v + 1
  end
  while lo < hi do
    local mid = lo + hi
    mid = (mid - mid % 2) / 2
    if unpack(g, v, from + mid * size) < bound then
      lo = mid + 1
    else
      hi = mid
    end
  end
  return from + lo * size
end
local function whole(v)
  local w = byte(v)
  if w ~= 2 and w ~= 4 and w ~= 7 then
    error('ABACUS foreign', 0)
  elseif #v == (11 + w) then
    return v .. string.rep('\0', 8 + 4 * w)
  elseif #v < (15 + 4 * w) + 4 + w or (#v - (15 + 4 * w)) % (4 + w) ~= 0 or #v < (15 + 4 * w) + unpack('>I3', v, (11 + w) + 2) * (4 + w) then
    error('ABACUS foreign', 0)
  end
  return v
end
local function roomFor(count, w)
  if count < 8 then
    return count == 0 and 1 or 0
  elseif count >= 160 then
    return 0
  end
  local head, size = (15 + 4 * w) + 6, 4 + w
  local need, unit = head + (count + 4 + count / 16) * size, 16
  while need > 8 * unit do
    unit = 2 * unit
  end
  local room = (need + -need % unit - head) / size - count
  return room - room % 1
end
local function list(v)
  v = whole(v)
  local w = byte(v)
  return sub(v, 1, 7) .. sub(v, (15 + 4 * w) + 1 - w, (15 + 4 * w) + unpack('>I3', v, (11 + w) + 2) * (4 + w)) .. sub(v, 8, (11 + w))
end
local LEAVES, ENTRIES = 125, 2000
local high, low, ms, from
high, low, ms, stretch, from = unpack('>I4I4I6I2I6', ARGV[1])
local marker, r, names = KEYS[#KEYS], #KEYS > 1 and KEYS[1], {}
local v = call('GET', marker)
if v then
  if #v ~= 8 then
    return redis.error_reply('ABACUS foreign')
  end
  local h, l = unpack('>I4I4', v)
  if h > high or h == high and l > low then
    high, low = h, l
  end
  ms = math.max(ms, call('PTTL', marker))
end
call('SET', marker, pack('>I4I4', high, low), 'PX', ms)
local s = r and call('GET', r)
if not s then
  return 0
end
s = list(s)
local w, seen, next = byte(s), 0, 0
local size, origin = 4 + w, unpack('>I6', s, 2)
for p = rank(s, '>I4', size, (8 + w), from - origin), #s, size do
  local entry = unpack('>I4', s, p)
  local x, kind = entry + origin, entry % 8
  if seen == ENTRIES or #names == LEAVES then
    next = x - kind
    break
  end
  seen = seen + 1
  if kind > 0 then
    names[#names + 1] = r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4')
  end
end
if next == 0 then
  names[#names + 1] = r
end
if #names > 0 then
  call('UNLINK', spread(names))
end
return next
