-- Forgets a key, one step at a time.
-- KEYS: a root, or none, and the marker of the key. ARGV[1]: the label to remember, as
-- two numbers of four bytes, for how many ms, stretch, and the position from which on
-- the root's leaves are still to be unlinked.
-- Returns the position for the next step, 0 after the last.

local LEAVES, ENTRIES = 125, 2000 -- of a step: half a millisecond
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
for p = rank(s, '>I4', size, FIRST, from - origin), #s, size do
  local entry = unpack('>I4', s, p)
  local x, kind = entry + origin, entry % 8
  if seen == ENTRIES or #names == LEAVES then
    next = x - kind
    break
  end
  seen = seen + 1
  if kind > 0 then
    names[#names + 1] = LEAF
  end
end
if next == 0 then
  names[#names + 1] = r
end
if #names > 0 then
  call('UNLINK', spread(names))
end
return next
