-- Adds n hits to buckets, or takes them back, and returns the counts of buckets then.
-- KEYS: roots. ARGV[1]: mode (0 add, 2 take back), options (1: also if a label is
-- from before the edge; 4: tell the time), due, n, and for each root: stretch, its time to live in ms, stale,
-- the position of the oldest bucket to be changed, the numbers of positions to change
-- and of buckets to be told, 1 if the value is to be read, the number of leaves to be
-- read with it; then the positions to change, the first and the last of each bucket to
-- be told, and a position in each leaf.
-- Returns for each root the counts of its buckets, the root as a list and its leaves; and if
-- hits were added the time, 0 unless it is to be told. After the deadline nothing is
-- added: LATE and the time.

local request, values, roots, reply, time = ARGV[1], {}, {}, {}, 0
local mode, options, due, n, cursor = unpack('>I1I1I7I7', request)
local adds, begin = n > 0 and mode == COUNT, cursor

-- All roots have room, or no root is added to.
for i = 1, #KEYS do
  local v, s, ttl, stale, oldest, changes, tells, whole, leaves = call('GET', KEYS[i])
  stretch, ttl, stale, oldest, changes, tells, whole, leaves, cursor = unpack(GROUP, request, cursor)
  cursor = cursor + 6 * (changes + 2 * tells + leaves)
  if v then
    s = list(v)
    values[i], roots[i] = v, s
  end
  if s and adds and changes > 0 then
    OPEN
    local n, total = n * changes, TOTAL
    if options % 2 == 0 and EDGED and oldest - origin <= unpack('>I4', s, FIRST) then
      return redis.error_reply('ABACUS stale') -- buckets in a coarse bucket were dropped
    elseif FULL then
      return redis.error_reply('ABACUS full')
    end
  end
end
DUE

local change = n > 0 and slowly()
cursor = begin
for i = 1, #KEYS do
  local r, s, ttl, stale, oldest, changes, tells, whole, leaves, x, to = KEYS[i], roots[i]
  stretch, ttl, stale, oldest, changes, tells, whole, leaves, cursor = unpack(GROUP, request, cursor)
  -- An addition to the newest bucket is told as the count before, and the addition.
  local at = adds and changes == 1 and whole == 0 and unpack('>I6', request, cursor)
  if at and s then
    OPEN
    at = at - origin >= LAST - LAST % 8 and at
  end
  for _ = 1, at and 0 or changes do
    x, cursor = unpack('>I6', request, cursor)
    s = change(r, s, x, mode == BACK and -n or n, stale, ttl)
    if s == false then
      return redis.error_reply('ABACUS full')
    end
  end
  cursor = at and cursor + 6 or cursor
  for _ = 1, tells do
    x, to, cursor = unpack('>I6I6', request, cursor)
    reply[#reply + 1] = (s and before(r, s, to) - before(r, s, x) or 0) + (at and x <= at and at < to and n or 0)
  end
  if at and s then
    local w, origin, entry, total, room, count, here, prior = open(values[i])
    add(r, at, n, stale, ttl, w, origin, entry, total, room, count, here, prior)
  elseif at then
    add(r, at, n, stale, ttl)
  end
  if whole == 1 then
    reply[#reply + 1] = s or false
  end
  for _ = 1, leaves do
    x, cursor = unpack('>I6', request, cursor)
    reply[#reply + 1] = s and leaf(r, s, x) or false
  end
end
if adds then
  reply[#reply + 1] = time
end
return reply
