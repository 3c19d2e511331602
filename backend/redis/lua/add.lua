-- The numbers at the beginning of a root, and its change by a hit that is not late.

-- open returns the numbers in the head of root v, of which the first 54 bytes are
-- enough, and the edge, -1 if there is none.
local function open(v)
  local w = byte(v)
  if #v == SHORT and (w == 2 or w == 4 or w == 7) then
    local _, origin, entry, total = unpack(w == 2 and SINGLE or w == 4 and '>I1I6I4I4' or '>I1I6I4I7', v)
    return w, origin, entry, total, 0, 0, 0, 0, 0, -1
  elseif w ~= 2 and w ~= 4 and w ~= 7 or #v < HEAD + 4 + w then
    error('ABACUS foreign', 0)
  end
  local _, origin, entry, total, room, count, here, prior, base, first, sum = unpack(FIELDS, v)
  if count == 0 then
    first, sum = entry, total
  end
  return w, origin, entry, total, room, count, here, prior, base, sum == base and first or -1
end

local texts, known = {}, 0

-- text returns number n as a string. A command takes a number for 0.35 us longer.
local function text(n)
  local t = texts[n]
  if not t then
    if known == 4000 then
      texts, known = {}, 0
    end
    t = string.format('%.0f', n)
    texts[n], known = t, known + 1
  end
  return t
end

-- widen writes root r anew, with one more entry, room for further entries, and without
-- stale entries. The numbers are those of open, but for here and prior, which are those
-- to be written.
local function widen(r, at, sum, stale, ttl, w, origin, entry, total, count, here, prior)
  local f, size, first = FORMAT, 4 + w, HEAD + 1
  local v, stop, old, edge = whole(call('GET', r)), first + count * size, first - w, ''
  local bound = stale - origin
  if count > 1 and unpack('>I4', v, first + size) < bound then
    local g, from, lo, hi = '>I4', first, 1, count
    SEARCH
    old = first + lo * size
    local dropped, last = sub(v, old - w, old - 1), unpack('>I4', v, old - size)
    edge = dropped .. pack('>I4', last - last % 8) .. dropped
    count = count - lo + 1
    local least = unpack(f, dropped)
    here, prior = math.max(here, least), math.max(prior, least)
  end
  count = count + 1
  local room = roomFor(count, w)
  call('SET', r, sub(v, 1, 7) .. pack(ALL, at, sum, room, count, here, prior) .. edge .. sub(v, old, stop - 1) ..
    pack(PAIR, entry, total) .. string.rep('\0', room * size), 'PX', text(ttl))
end

-- ending returns the end of a long root as a list, if the end has an entry before
-- position from, and the number of the entries before; otherwise the whole list.
local function ending(r, from, w, origin, entry, total, count)
  local skip = count >= LONG and count - TAIL or 0
  while skip > 0 do
    local tail = call('GETRANGE', r, text(HEAD - w + skip * (4 + w)), text(HEAD - 1 + count * (4 + w)))
    if unpack('>I4', tail, w + 1) < from then
      return pack('>I1I6', w, origin) .. tail .. pack(PAIR, entry, total), skip
    end
    skip = count - 4 * (count - skip)
  end
  return list(call('GET', r))
end

-- putter returns a function that writes a list in place of all but skip entries of a
-- root; nil without skip, for a whole list.
local function putter(w, skip, here, prior)
  return skip and function(r, s, ttl)
    local size = 4 + w
    local entry, total = unpack(PAIR, s, #s - size + 1)
    call('SETRANGE', r, text(HEAD + skip * size), sub(s, 8 + w, -size - 1))
    call('SETRANGE', r, '7', pack(ALL, entry, total, 0, skip + (#s - 7 - w) / size - 1, here, prior))
    call('PEXPIRE', r, text(ttl))
  end
end

-- add counts n hits at position x of root r, and returns the newest position. The
-- other numbers are those of open; w is false if there is no root.
local function add(r, x, n, stale, ttl, w, origin, entry, total, room, count, here, prior)
  if not w then
    if n >= 65536 then
      slowly()(r, nil, x, n, stale, ttl)
    elseif not call('SET', r, pack(SINGLE, 2, x - x % stretch - BACKWARD, x % stretch + BACKWARD, n), 'PX', text(ttl), 'NX') then
      error('ABACUS foreign', 0) -- an empty string
    end
    return x
  end
  local at, kind, f = x - origin, entry % 8, FORMAT
  local last, sum, name = entry - kind, total + n
  if at == last and sum < ROOMS then
    call('SETRANGE', r, '11', pack(f, sum))
    return x
  elseif FAR or sum >= ROOMS then
    local change, s = slowly(), list(call('GET', r))
    s = change(r, s, x, n, stale, ttl)
    OPEN
    return NEWEST
  end
  local start = at - at % stretch
  if at < last then
    local begin, s, skip = entry - entry % stretch, ending(r, start, w, origin, entry, total, count)
    slowly()(r, s, x, n, skip and 0 or stale, ttl, putter(w, skip, at < begin and here + n or here, at < begin - stretch and prior + n or prior))
    return last + origin
  end
  if kind > 0 and last >= start then
    -- The leaf lacks its last bucket, which is appended when it is over.
    local share, wide, slot, was = total - here, WIDE, at % stretch / 8, last % stretch / 8
    if share + n >= 256 ^ wide then
      slowly()(r, list(call('GET', r)), x, n, stale, ttl)
      return x
    elseif kind == 1 then
      name = NAMED
      local len = call('APPEND', name, pack('>I2I2', was, share))
      if len == 4 then
        call('PEXPIRE', name, text(ttl))
      elseif len >= SPARSE then
        local _, _, rewrite = slowly()
        kind = rewrite(r, x, kind, slot, share, ttl)
      end
    else
      name = NAMED
      local sums = string.rep(pack('>I' .. wide, share), slot - was)
      if was == 0 or call('APPEND', name, sums) ~= slot * wide then
        -- The leaf is empty, or is or was missing: its hits count from its last
        -- bucket on. An append would make a leaf without a time to live.
        call('SET', name, string.rep('\0', was * wide) .. sums, 'PX', text(ttl))
      end
    end
    call('SETRANGE', r, '7', pack(PAIR, at + kind, sum))
    return x
  end
  local begins, many, size, limit = last < start, count >= LONG, 4 + w, FEW
  local first, whole = here, false -- sum before the stretch of the last entry
  if begins then
    here, prior = total, last >= start - stretch and here or total
  end
  if begins and many then
    limit = count * size > 4096 and 2 or limit
    local p = HEAD + (count - count % 8) / 8 * size
    whole = unpack('>I4', call('GETRANGE', r, text(p), text(p + 3))) < stale - origin -- an eighth is stale
  end
  if whole or begins and (kind > 1 or total - first >= limit) or not begins and count >= MANY and total - first >= FEW then
    local _, _, _, insert = slowly()
    local s, skip = ending(r, whole and 0 or last - last % stretch, w, origin, entry, total, count)
    insert(r, s, at, n, skip and 0 or stale, limit, ttl, putter(w, skip, here, prior))
    return x
  end
  if room == 0 and not many then
    widen(r, at, sum, stale, ttl, w, origin, entry, total, count, here, prior)
    return x
  end
  if many and call('STRLEN', r) < HEAD + count * size then
    error('ABACUS foreign', 0) -- a number of entries that are not there: SETRANGE would make them
  end
  room = many and 0 or room - 1
  call('SETRANGE', r, text(HEAD + count * size), pack(PAIR, entry, total))
  call('SETRANGE', r, '7', pack(ALL, at, sum, room, count + 1, here, prior))
  if begins then
    call('PEXPIRE', r, text(ttl))
  end
  return x
end
