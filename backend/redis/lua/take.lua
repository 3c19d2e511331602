-- Takes hits of several keys if every window of those that are not soft has room.
-- KEYS: roots, the roots of one key beside each other. ARGV[1]: mode, any (1: also if a
-- label is from before the edge), due, and for each root the position of now, stale,
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
-- newest position of each root, 0 for none, and if hits were added the time. After the
-- deadline nothing is added: LATE and the time. The last three bits of a position have
-- no meaning.
--
-- What is done with a root, by where now is and what its last entry is:
--
--   a soft key without room, or no hits to add    nothing
--   no root                                       SET of a root with one entry
--   now is before the last entry or far from it,
--   or a sum needs more bytes                     change()
--   now begins a stretch                          SET with one more entry; the stretch before
--                                                 is moved to a leaf, stale entries are dropped
--   the last entry is a bucket: that of now       SETRANGE of its sum
--                               an older one      one more entry: SET if short, else APPEND;
--                                                 with MANY entries the stretch moves to a leaf
--   the last entry is a leaf:   now is its end    SETRANGE of its sum
--                               now is after it   its last bucket is appended to the leaf,
--                                                 SETRANGE of position and sum

local request, counts, freed, room, roots, time = ARGV[1], '', '', true, #KEYS > 1 and {}, 0
local mode, any, due, cursor = unpack('>I1I1I7', request)
local now, stale, ttl, n, flags, windows, s, w, f, size, origin, total
local owner, skip, full -- the first root of a key; of soft keys without room; of keys that are full, 0 for a hard one
if mode >= BACK then
  for i = 1, #KEYS do
    now, stale, ttl, n, stretch, flags, windows, cursor = unpack(ROOT, request, cursor)
    cursor = cursor + 13 * windows
    s = n > 0 and (mode == BACK or flags < 2) and call('GET', KEYS[i])
    if s then
      slowly()(KEYS[i], s, now, -n, stale, ttl)
    end
  end
  return ADDED
end

for i = 1, #KEYS do
  local r, begin = KEYS[i], cursor
  now, stale, ttl, n, stretch, flags, windows, cursor = unpack(ROOT, request, cursor)
  if flags % 2 == 0 then
    owner = i
  end
  s = call('GET', r)
  if s then
    w = string.byte(s)
    if DAMAGED then
      return redis.error_reply('ABACUS foreign')
    end
    f, size = FORMAT, 4 + w
    origin, total = unpack('>I6', s, 2), TOTAL
    if FULL then
      full = full or {}
      full[#full + 1] = flags > 1 and owner or 0
    end
    if windows == 0 and any == 0 and EDGED and now - origin <= unpack('>I4', s, FIRST) then
      return redis.error_reply('ABACUS stale')
    end
  end
  for _ = 1, windows do
    local count, x, max, p = 0
    x, max, cursor = unpack('>I6I7', request, cursor)
    if s then
      local at = x - origin
      p = rank(s, '>I4', size, FIRST, at)
      if p == FIRST and EDGED then
        if any == 0 then
          return redis.error_reply('ABACUS stale')
        end
        p = p + size
      end
      BEFORE
      count = total - sum
    end
    counts = counts .. pack('>I7', count)
    if count > max - n then
      if flags > 1 then
        skip = skip or {}
        skip[owner] = true
      else
        room = false
      end
      freed = freed .. pack('>I6', count > 0 and holds(r, s, w, f, origin, math.min(total - max + n, total), p, math.min(count - max + n, count)) or 0)
    end
  end
  if roots then
    roots[i] = {begin, s, w, f, size, origin, total}
  end
end

if not room or mode == PEEK then
  for i = 1, #KEYS do
    if roots then
      s, w, origin = roots[i][2], roots[i][3], roots[i][6]
    end
    freed = freed .. pack('>I6', NEWEST)
  end
  return (not room and DENIED or skip and PART or ADDED) .. counts .. freed
end
for i = 1, full and #full or 0 do
  if not skip or not skip[full[i]] then
    return redis.error_reply('ABACUS full')
  end
end
DUE

counts = counts .. freed
for i = 1, #KEYS do
  local r, slow = KEYS[i]
  if roots then
    local root = roots[i]
    s, w, f, size, origin, total = root[2], root[3], root[4], root[5], root[6], root[7]
    now, stale, ttl, n, stretch, flags = unpack(ROOT, request, root[1])
    if flags % 2 == 0 then
      owner = i
    end
  end
  local x, newest = now, now
  if n == 0 or skip and skip[owner] then
    newest = NEWEST
  elseif not s and n < 65536 then
    call('SET', r, pack('>I1I6I2I4I2', 2, x - x % stretch - BACKWARD, 0, x % stretch + BACKWARD, n), 'PX', ttl)
  elseif not s or total + n >= (w == 2 and 65536 or w == 4 and 4294967296 or MOST) then
    slow = true
  else
    local at, entry = x - origin, LAST
    local kind = entry % 8
    local last, start = entry - kind, at - at % stretch
    if at < last or FAR then
      slow = true
    elseif last < start then
      if kind > 1 or CROWDED then
        local _, bundle, rewrite = slowly()
        if kind == 0 then
          s = bundle(r, s, w, f, origin, last + origin, ttl)
        else
          rewrite(r, last + origin, kind, 0, 0, ttl)
        end
      end
      local eighth = (#s - 7 - w) / size
      eighth = (eighth - eighth % 8) / 8
      if unpack('>I4', s, FIRST + eighth * size) < stale - origin then
        DROP
      end
      call('SET', r, s .. pack('>I4' .. f, at, total + n), 'PX', ttl)
    elseif kind == 0 then
      if at == last then
        call('SETRANGE', r, #s - w, pack(f, total + n))
      elseif #s > MANY * size and unpack('>I4', s, #s - FEW * size + 1) >= start then
        local _, bundle = slowly()
        call('SET', r, bundle(r, s .. pack('>I4' .. f, at, total + n), w, f, origin, x, ttl), 'PX', ttl)
      elseif #s < 1024 then
        -- An append doubles the memory of a value, for as long as the stretch lasts. To
        -- write a small value anew is a little slower.
        call('SET', r, s .. pack('>I4' .. f, at, total + n), 'KEEPTTL')
      else
        call('APPEND', r, pack('>I4' .. f, at, total + n))
      end
    else
      -- The leaf lacks its last bucket, which is appended when it is over.
      local share, wide, name = total - unpack(f, s, #s - 2 * w - 3), WIDE, at > last and LEAF
      local slot, was = at % stretch / 8, last % stretch / 8
      if share + n >= 256 ^ wide then
        slow = true
      elseif name and kind == 1 then
        local len = call('APPEND', name, pack('>I2I2', was, share))
        if len == 4 then
          call('PEXPIRE', name, ttl)
        elseif len >= SPARSE then
          local _, _, rewrite = slowly()
          kind = rewrite(r, x, kind, slot, share, ttl)
        end
      elseif name then
        local sums = string.rep(pack('>I' .. wide, share), slot - was)
        if was == 0 or call('APPEND', name, sums) ~= slot * wide then
          -- The leaf is empty, or is or was missing: its hits count from its last
          -- bucket on. An append would make a leaf without a time to live.
          call('SET', name, string.rep('\0', was * wide) .. sums, 'PX', ttl)
        end
      end
      if not slow then
        call('SETRANGE', r, #s - w - 4, pack('>I4' .. f, at + kind, total + n))
      end
    end
  end
  if slow then
    s = slowly()(r, s or nil, x, n, stale, ttl)
    OPEN
    newest = NEWEST
  end
  counts = counts .. pack('>I6', newest)
end
return (skip and PART or ADDED) .. counts .. pack('>I7', time)
