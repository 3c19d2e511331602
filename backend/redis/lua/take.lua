-- Takes hits of several keys if every window of those that are not soft has room.
-- KEYS: roots, the roots of one key beside each other. ARGV[1]: mode, options (1: also if
-- a label is from before the edge; 2: exact counts though all keys fit; 4: tell the time;
-- 8: the only root is likely missing; 16: the hits of each root are taken several times, as
-- often as all have room, up to the number in the last seven bytes), due, and for each root the position of now, stale,
-- its time to live in ms, its hits, stretch, flags (1: of the same key as the root
-- before; 2: of a soft key), the number of its windows, and of each window the
-- position of its oldest bucket, and Max.
--
--   mode      all hard keys fit         some do not
--   COUNT     adds                      writes nothing
--   PEEK      writes nothing            writes nothing
--   BACK      takes back what a late call has added, whether or not keys fit
--   PARTBACK  the same, but not from soft keys
--
-- Returns a byte (DENIED; ADDED: to all keys; PART: not to all soft keys), the count of
-- each window, of each window without room the position that must leave the window, the
-- newest position of each root, 0 for none, and if hits were added the time, 0 unless it
-- is to be told. After the deadline nothing is added: LATE and the time. The last three
-- bits of a position have no meaning. Numbers cost less than a string of numbers: if hits
-- were added to the only root at its newest position, and the root has a single window, the
-- answer is the count alone, unless the time is to be told; to several roots, each at its
-- newest position, a list of the counts and the time.
--
-- First the heads of the roots alone are read. From the total and the sums at the begin
-- of the newest stretch and of the stretch before follows an upper bound of each count. If
-- all windows have room by their bounds, hits are added at once. Otherwise the roots
-- are read whole, and counts are exact.

local request, counts, time, several = ARGV[1], '', 0, #KEYS > 1
local mode, options, due, now, stale, ttl, n, flags, windows, cursor
mode, options, due, now, stale, ttl, n, stretch, flags, windows, cursor = unpack(FIRSTROOT, request)
local any, x, max, w, f, origin, entry, total, room, count, here, prior, base, edge = options % 2
local times = 1
if options > 15 then
  times = unpack('>I7', request, #request - 6)
end
if mode >= BACK then
  cursor = BEGIN
  for i = 1, #KEYS do
    now, stale, ttl, n, stretch, flags, windows, cursor = unpack(ROOT, request, cursor)
    cursor = cursor + 13 * windows
    local v = n > 0 and (mode == BACK or flags < 2) and call('GET', KEYS[i])
    if v then
      slowly()(KEYS[i], list(v), now, -n * times, stale, ttl)
    end
  end
  return ADDED
end

if options % 16 > 7 and redis.REDIS_VERSION_NUM then -- from version 7 on, which has NX beside GET
  DUE
  due = 0
  if not call('SET', KEYS[1], pack(SINGLE, 2, now - now % stretch - BACKWARD, now % stretch + BACKWARD, n), 'PX', text(ttl), 'NX', 'GET') then
    if windows == 1 and options % 8 < 4 then
      return 0
    end
    return ADDED .. string.rep('\0', 7 * windows) .. pack('>I6I7', now, time)
  end
end

local known -- whether the numbers of the only root are known
if mode == COUNT and options % 4 < 2 then
  local roots, bounds, fits, bound, second, third = several and {}, several and {}, true -- bounds of the last, the last but one, and the one before
  for i = 1, #KEYS do
    local v, start = call('GETRANGE', KEYS[i], '0', '53')
    if i > 1 then
      now, stale, ttl, n, stretch, flags, windows, cursor = unpack(ROOT, request, cursor)
    end
    if v == '' then
      w, fits = false, n > 0 and not (several and call('GET', KEYS[i]))
    else
      w, origin, entry, total, room, count, here, prior, base, edge = open(v)
      start, known = entry - entry % stretch, not several
      fits = n > 0 and total + n < ROOMS and (edge < 0 or windows > 0 or any == 1 or now - origin > edge)
    end
    for left = windows, 1, -1 do
      bound = 0
      x, max, cursor = unpack('>I6I7', request, cursor)
      if w then
        x = x - origin
        if x <= edge then
          fits = false
        elseif x <= entry then
          bound = total - (x >= start and here or x >= start - stretch and prior or base)
        end
      end
      if bound > max - n then
        fits = false
        break
      end
      if several then
        bounds[#bounds + 1] = bound
      elseif left > 3 then
        counts = counts .. pack('>I7', bound)
      elseif left == 3 then
        third = bound
      elseif left == 2 then
        second = bound
      end
    end
    if not fits then
      break
    end
    if i < #KEYS then
      roots[i] = {now, stale, ttl, n, stretch, w, origin, entry, total, room, count, here, prior}
    end
  end
  if fits then
    DUE
    if not several then
      x = add(KEYS[1], now, n, stale, ttl, w, origin, entry, total, room, count, here, prior)
      if windows == 1 then
        if x == now and options % 8 < 4 then
          return bound
        end
        return pack('>I1I7I6I7', ADDEDBYTE, bound, x, time)
      elseif windows == 0 then
        return ADDED .. pack('>I6I7', x, time)
      elseif windows == 2 then
        return pack('>I1I7I7I6I7', ADDEDBYTE, second, bound, x, time)
      end
      return ADDED .. counts .. pack('>I7I7I7I6I7', third, second, bound, x, time)
    end
    local late = false
    for i = #KEYS, 1, -1 do
      if i < #KEYS then -- the numbers of the last root are still there
        now, stale, ttl, n, stretch, w, origin, entry, total, room, count, here, prior = spread(roots[i], 1, 13)
      end
      roots[i] = add(KEYS[i], now, n, stale, ttl, w, origin, entry, total, room, count, here, prior)
      late = late or roots[i] ~= now
    end
    if not late then
      bounds[#bounds + 1] = time
      return bounds
    end
    for i = 1, #bounds do
      counts = counts .. pack('>I7', bounds[i])
    end
    for i = 1, #KEYS do
      counts = counts .. pack('>I6', roots[i])
    end
    return ADDED .. counts .. pack('>I7', time)
  end
  counts = ''
end

local freed, fits, roots, hits, leaver = '', true, several and {}
cursor = BEGIN
local owner, skip, full -- the first root of a key; of soft keys without room; of keys that are full, 0 for a hard one
for i = 1, #KEYS do
  local r, v, from, size, first, stop = KEYS[i], call('GET', KEYS[i]), cursor
  now, stale, ttl, n, stretch, flags, windows, cursor = unpack(ROOT, request, cursor)
  if flags % 2 == 0 then
    owner = i
  end
  if v then
    if not known then
      w, origin, entry, total, room, count, here, prior, base, edge = open(v)
    end
    f, size, first = FORMAT, 4 + w, HEAD + 1
    stop = first + count * size
    if #v < stop or (#v - first + 1) % size > 0 then
      v = whole(v)
    end
    if total - base + n > MOST then
      local s = list(v)
      if FULL then
        full = full or {}
        full[#full + 1] = flags > 1 and owner or 0
      end
    end
    if windows == 0 and any == 0 and now - origin <= edge then
      return redis.error_reply('ABACUS stale')
    end
    if times > 1 then
      times = often(times, n, MOST - total + base)
    end
  end
  for left = windows, 1, -1 do
    local p
    hits, leaver = 0, false
    x, max, cursor = unpack('>I6I7', request, cursor)
    if v then
      local at = x - origin
      if any == 0 and at <= edge then
        return redis.error_reply('ABACUS stale')
      end
      local g, from, bound, lo, hi = '>I4', first, at, edge >= 0 and count > 0 and 1 or 0, count
      SEARCH
      p = first + lo * size
      local sum = unpack(f, v, p - w)
      if lo < count then
        local entry, upto = unpack('>I4' .. f, v, p)
        BEFORE
      elseif entry < at then
        sum = total
      else
        local upto = total
        BEFORE
      end
      hits = total - sum
    end
    if times > 1 then
      times = often(times, n, max - hits)
    end
    if several or windows > 1 then
      counts = counts .. pack('>I7', hits)
    end
    if hits > max - n then
      if flags > 1 then
        skip = skip or {}
        skip[owner] = true
      else
        fits = false
      end
      leaver = 0
      if hits > 0 then
        local must = hits - max + n
        if must > hits then
          must = hits
        end
        leaver = holds(r, v, w, f, origin, entry, stop, total - hits + must, p, must)
      end
      if several or windows > 1 then
        freed = freed .. pack('>I6', leaver)
      end
    end
  end
  if not v then
    w = false
  end
  if several then
    roots[i] = {from, w, origin, entry, total, room, count, here, prior}
  end
end

if not several and windows == 1 then
  if not fits then
    return pack('>I1I7I6I6', DENIEDBYTE, hits, leaver, w and origin + entry or 0)
  end
  counts = pack('>I7', hits)
  if leaver then
    freed = pack('>I6', leaver)
  end
end
if not fits or mode == PEEK then
  for i = 1, #KEYS do
    if several then
      w, origin, entry = roots[i][2], roots[i][3], roots[i][4]
    end
    freed = freed .. pack('>I6', w and origin + entry or 0)
  end
  return (not fits and DENIED or skip and PART or ADDED) .. counts .. freed
end
for i = 1, full and #full or 0 do
  if not skip or not skip[full[i]] then
    return redis.error_reply('ABACUS full')
  end
end
DUE

counts = counts .. freed
for i = 1, #KEYS do
  local newest
  if several then
    w, origin, entry, total, room, count, here, prior = spread(roots[i], 2, 9)
    now, stale, ttl, n, stretch, flags = unpack(ROOT, request, roots[i][1])
    if flags % 2 == 0 then
      owner = i
    end
  end
  if n == 0 or skip and skip[owner] then
    newest = w and origin + entry or 0
  else
    newest = add(KEYS[i], now, n * times, stale, ttl, w, origin, entry, total, room, count, here, prior)
  end
  counts = counts .. pack('>I6', newest)
end
return (options > 15 and TIMES .. pack('>I7', times) or skip and PART or ADDED) .. counts .. pack('>I7', time)
