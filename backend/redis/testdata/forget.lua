local spread = unpack
local unpack, pack, call = struct.unpack, struct.pack, redis.call
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
local w = string.byte(s)
if (w ~= 2 and w ~= 4 and w ~= 7 or #s < 11 + 2 * w or (#s - 7 - w) % (4 + w) ~= 0) then
  return redis.error_reply('ABACUS foreign')
end
local size, origin, seen, next = 4 + w, unpack('>I6', s, 2), 0, 0
for p = rank(s, '>I4', size, (8 + w), from - origin), #s, size do
  local entry = unpack('>I4', s, p)
  local x, kind = entry + origin, entry % 8
  if seen == ENTRIES or #names == LEAVES then
    next = x - kind
    break
  end
  seen = seen + 1
  if kind > 0 then
    names[#names + 1] = r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10
  end
end
if next == 0 then
  names[#names + 1] = r
end
if #names > 0 then
  call('UNLINK', spread(names))
end
return next
