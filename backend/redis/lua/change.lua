-- Changes that few hits need: those of late hits, of hits that are taken back, and of
-- hits whose sums need more bytes.

local function bytes(sum)
  return sum < 65536 and 2 or sum < 4294967296 and 4 or 7
end

-- read returns slots and running sums of the buckets in the leaf of position x.
local function read(r, x, kind)
  local v, slots, sums = call('GET', LEAF) or '', {}, {}
  local wide, last = WIDE, 0
  local g, size = '>I' .. wide, kind == 1 and 4 or wide
  for p = 1, #v - size + 1, size do
    local sum = unpack(g, v, p + size - wide)
    if sum > last then
      slots[#slots + 1] = kind == 1 and unpack('>I2', v, p) or (p - 1) / wide
      sums[#sums + 1] = sum
      last = sum
    end
  end
  return slots, sums
end

-- write writes slots and sums as the leaf of position x, in place of a leaf of the given
-- kind, 0 for none, and returns the new kind. The leaf's last bucket is in slot last,
-- only the root has its sum, and share is the number of hits of all buckets.
local function write(r, x, kind, slots, sums, last, share, ttl)
  local parts, wide, was = {}, bytes(share), kind > 0 and LEAF
  local least = 0
  for i = 1, #slots + 1 do
    local slot = slots[i] or last
    if slot < least or 8 * slot >= stretch then
      error('ABACUS foreign', 0) -- entries out of order: a leaf could be as long as all memory
    end
    least = slot
  end
  if wide == 2 and #slots * 4 < SPARSE then
    kind = 1
    for i, slot in ipairs(slots) do
      parts[i] = pack('>I2I2', slot, sums[i])
    end
  else
    kind = wide == 2 and 2 or wide == 4 and 3 or 4
    local g, filled, sum = '>I' .. wide, 0, string.rep('\0', wide)
    for i, slot in ipairs(slots) do
      parts[#parts + 1] = string.rep(sum, slot - filled)
      filled, sum = slot, pack(g, sums[i])
    end
    parts[#parts + 1] = string.rep(sum, last - filled)
  end
  local name = LEAF
  if was and was ~= name then
    call('DEL', was)
  end
  if #parts == 0 then
    call('DEL', name)
  else
    call('SET', name, table.concat(parts), 'PX', ttl)
  end
  return kind
end

-- store writes root r anew, of list s. Free room for later entries follows the list: an
-- append would double the memory of the value.
local function store(r, s, ttl)
  OPEN
  local count, base, entry = (#s - 7 - w) / size - 1, BASE, LAST
  if count == 0 and base == 0 then
    call('SET', r, sub(s, 1, 7) .. sub(s, 8 + w), 'PX', ttl)
    return
  end
  local start = entry - entry % stretch
  local here, prior = rank(s, '>I4', size, FIRST, start), rank(s, '>I4', size, FIRST, start - stretch)
  local room = roomFor(count, w)
  call('SET', r, sub(s, 1, 7) .. sub(s, -size) .. pack('>I1I3' .. f .. f, room, count, unpack(f, s, here - w), unpack(f, s, prior - w)) ..
    sub(s, 8, -size - 1) .. string.rep('\0', room * size), 'PX', ttl)
end

-- rewrite writes a leaf anew after many appends: a sparse leaf becomes dense, and a
-- dense leaf loses its spare memory. rewrite returns the new kind.
local function rewrite(r, x, kind, last, share, ttl)
  if kind == 1 then
    local slots, sums = read(r, x, kind)
    return write(r, x, kind, slots, sums, last, share, ttl)
  end
  local v = call('GET', LEAF)
  if v then
    call('SET', LEAF, v, 'PX', ttl)
  end
  return kind
end

-- bundle moves the buckets in the stretch of position x to a leaf, and returns the new
-- value of the root. The stretch has no leaf.
local function bundle(r, s, w, f, origin, x, ttl)
  local start, size, slots, sums = x - x % stretch - origin, 4 + w, {}, {}
  local p, rest = rank(s, '>I4', size, FIRST, start), rank(s, '>I4', size, FIRST, start + stretch)
  if p == FIRST and EDGED then
    p = p + size -- the edge stays where it is
  end
  local prev = unpack(f, s, p - w)
  local last, share = unpack('>I4' .. f, s, rest - size)
  last, share = (last - start) / 8, share - prev
  local kind, from = 1, p
  if share < 65536 and (rest - p) / size * 4 < SPARSE then
    -- A sparse leaf, eight buckets at a time.
    local parts, pair = {}, 'I4' .. sub(f, 2)
    local eight = '>' .. string.rep(pair, 8)
    while rest - from > 8 * size do
      local a, i, b, j, c, k, d, l, e, m, g, o, h, q, t, u = unpack(eight, s, from)
      parts[#parts + 1] = pack('>I2I2I2I2I2I2I2I2I2I2I2I2I2I2I2I2', (a - start) / 8, i - prev, (b - start) / 8, j - prev, (c - start) / 8, k - prev,
        (d - start) / 8, l - prev, (e - start) / 8, m - prev, (g - start) / 8, o - prev, (h - start) / 8, q - prev, (t - start) / 8, u - prev)
      from = from + 8 * size
    end
    for q = from, rest - size - 1, size do
      local at, sum = unpack('>' .. pair, s, q)
      parts[#parts + 1] = pack('>I2I2', (at - start) / 8, sum - prev)
    end
    if #parts > 0 then
      call('SET', LEAF, table.concat(parts), 'PX', ttl)
    end
  else
    for q = p, rest - size - 1, size do
      local at, sum = unpack('>I4' .. f, s, q)
      slots[#slots + 1], sums[#sums + 1] = (at - start) / 8, sum - prev
    end
    kind = write(r, x, 0, slots, sums, last, share, ttl)
  end
  return sub(s, 1, p - 1) .. pack('>I4' .. f, start + 8 * last + kind, prev + share) .. sub(s, rest)
end

-- raise returns v with d more in each sum of w bytes from byte from on; skip bytes stand
-- before each sum: 4 in a root, 2 in a sparse leaf, 0 in a dense leaf. To unpack sixteen numbers at a time takes a
-- third of the time.
local function raise(v, skip, w, from, d)
  local parts, f, size, e = {sub(v, 1, from - 1)}, '>I' .. w, skip + w, skip > 0 and 0 or d
  local sixteen = '>' .. string.rep('I' .. (skip > 0 and skip or w) .. 'I' .. w, 8)
  local long = struct.size(sixteen)
  while #v - from + 1 >= long do
    local a, i, b, j, c, k, g, l, h, m, o, q, t, u, x, y = unpack(sixteen, v, from)
    parts[#parts + 1] = pack(sixteen, a + e, i + d, b + e, j + d, c + e, k + d, g + e, l + d, h + e, m + d, o + e, q + d, t + e, u + d, x + e, y + d)
    from = from + long
  end
  for p = from, #v, size do
    parts[#parts + 1] = sub(v, p, p + skip - 1) .. pack(f, unpack(f, v, p + skip) + d)
  end
  return table.concat(parts)
end

-- renew returns root s with sums that start anew, so that n more have room, and with
-- positions that start anew if x has none. Buckets too far from x for that are dropped.
-- renew returns false if the sums would exceed MOST.
local function renew(s, w, f, origin, n, x)
  local base, total = BASE, TOTAL
  if total - base + n > MOST then
    return false
  end
  local wider = bytes((total - base + n) * 2)
  local g, start, parts, gone = '>I' .. wider, origin, {}, -1
  if FAR then
    start = x - x % stretch - BACKWARD
  end
  for p = FIRST, #s, 4 + w do
    local at, sum = unpack('>I4' .. f, s, p)
    at, sum = at + origin - start, sum - base
    if at < 0 then
      gone = sum
    elseif at < 4294967296 then
      if gone >= 0 and #parts == 0 and at > 7 then
        parts[1] = pack('>I4' .. g, 0, gone)
      end
      parts[#parts + 1] = pack('>I4' .. g, at, sum)
    end
  end
  return pack('>I1I6' .. g, wider, start, math.max(gone, 0)) .. table.concat(parts), wider, g, start
end

-- close moves the stretch of the last entry to a leaf, if it has limit entries, and
-- frees the spare memory of a leaf that is over. close returns the new list.
local function close(r, s, w, f, origin, last, limit, ttl)
  local size = 4 + w
  if last % 8 > 1 then
    rewrite(r, last + origin, last % 8, 0, 0, ttl)
  elseif last % 8 == 0 and CROWDED then
    s = bundle(r, s, w, f, origin, last + origin, ttl)
  end
  return s
end

-- insert counts n hits at position at of root r, of list s, in an entry of its own after
-- the last entry, where buckets may have to be moved to a leaf. put writes the list.
local function insert(r, s, at, n, stale, limit, ttl, put)
  OPEN
  local total, last, start = TOTAL, LAST, at - at % stretch
  if last < start then
    s = close(r, s, w, f, origin, last, limit, ttl)
  end
  if unpack('>I4', s, FIRST) < stale - origin then
    DROP
  end
  s = s .. pack('>I4' .. f, at, total + n)
  if last >= start and #s > (MANY + 1) * size and unpack('>I4', s, #s - (FEW + 1) * size + 1) >= start then
    s = bundle(r, s, w, f, origin, at + origin, ttl)
  end
  return (put or store)(r, s, ttl)
end

-- change counts n more at any position x of root r, or takes -n back, down to none, and
-- returns the new list. s is the root's list, nil if there is none; put writes a list. If
-- sums would exceed MOST, change writes nothing and returns false.
local function change(r, s, x, n, stale, ttl, put)
  if not s then
    if n > 0 then
      local w, origin = bytes(n), x - x % stretch - BACKWARD
      s = pack('>I1I6I' .. w .. 'I4I' .. w, w, origin, 0, x - origin, n)
      store(r, s, ttl)
    end
    return s
  end
  OPEN
  if unpack('>I4', s, FIRST) < stale - origin then
    DROP
  end
  local total = TOTAL
  if n < 0 and FAR then
    return s
  end
  if FAR or total + n > MOST or total + n >= 256 ^ w then
    s, w, f, origin = renew(s, w, f, origin, n, x)
    if not s then
      return false
    end
    size = 4 + w
  end
  local at = x - origin
  if #s > FIRST and EDGED and at <= unpack('>I4', s, FIRST) then
    if n < 0 then
      return s
    end
    -- A clock was set back: from now on the edge is unknown.
    s = sub(s, 1, 7 + w) .. sub(s, FIRST + size)
  end
  local p, start = rank(s, '>I4', size, FIRST, at), at - at % stretch
  local entry = p < #s and unpack('>I4', s, p) or -8
  if p > FIRST and (entry % 8 == 0 or entry < start or entry >= start + stretch) then
    -- at may be after the last bucket of a leaf.
    local left = unpack('>I4', s, p - size)
    if left % 8 > 0 and left >= start then
      p, entry = p - size, left
    end
  end
  local prev, kind, added = unpack(f, s, p - w), entry % 8
  if kind > 0 and entry >= start and entry < start + stretch then
    local name, share, wide = LEAF, unpack(f, s, p + 4) - prev, WIDE
    local slot, last, g = (at - start) / 8, (entry - start - kind) / 8, '>I' .. wide
    local v = kind > 1 and slot < last and call('GETRANGE', name, slot * wide, -1)
    local few = kind == 1 and n > 0 and slot < last and share + n < 65536 and call('GET', name)
    if few and #few < SPARSE - 4 and #few % 4 == 0 then
      -- In a sparse leaf the later sums change, and a bucket may be new.
      local q = rank(few, '>I2', 4, 1, slot)
      if q < #few and unpack('>I2', few, q) == slot then
        few = raise(few, 2, 2, q, n)
      else
        local under = q > 1 and unpack('>I2', few, q - 2) or 0
        few = sub(few, 1, q - 1) .. pack('>I2I2', slot, under + n) .. raise(sub(few, q), 2, 2, 1, n)
      end
      call('SET', name, few, 'PX', ttl)
    elseif v and #v == (last - slot) * wide and share + n < 256 ^ wide then
      -- In the middle of a dense leaf only the later sums change.
      local under = slot > 0 and unpack(g, call('GETRANGE', name, (slot - 1) * wide, slot * wide - 1)) or 0
      n = math.max(n, under - unpack(g, v))
      call('SETRANGE', name, slot * wide, raise(v, 0, wide, 1, n))
    elseif kind > 1 and slot > last and n > 0 and last > 0 and share + n < 256 ^ wide and call('STRLEN', name) == last * wide then
      -- A dense leaf grows at its end, though the root goes on after the leaf.
      call('APPEND', name, string.rep(pack(g, share), slot - last))
      s = sub(s, 1, p - 1) .. pack('>I4', at + kind) .. sub(s, p + 4)
    else
      local slots, sums = read(r, x, kind)
      slots[#slots + 1], sums[#sums + 1] = last, share
      local i = 1
      while i <= #slots and slots[i] < slot do
        i = i + 1
      end
      local under = sums[i - 1] or 0
      if slots[i] ~= slot then
        if n < 0 then
          return s
        end
        table.insert(slots, i, slot)
        table.insert(sums, i, under)
      end
      n = math.max(n, under - sums[i])
      for j = i, #sums do
        sums[j] = sums[j] + n
      end
      if sums[i] == under then
        table.remove(slots, i)
        table.remove(sums, i)
      end
      if #slots > 0 then
        last, share = table.remove(slots), table.remove(sums)
        kind = write(r, x, kind, slots, sums, last, share, ttl)
        s = sub(s, 1, p - 1) .. pack('>I4', start + 8 * last + kind) .. sub(s, p + 4)
      else
        call('DEL', name)
        s = sub(s, 1, p - 1) .. sub(s, p + size)
      end
    end
  elseif entry == at then
    local count = unpack(f, s, p + 4) - prev
    n = math.max(n, -count)
    if n == -count then
      s = sub(s, 1, p - 1) .. sub(s, p + size)
    end
  elseif n < 0 then
    return s
  else
    local last = #s > FIRST and LAST
    if p > #s and last and last < start then
      s = close(r, s, w, f, origin, last, #s > 4096 and 2 or FEW, ttl)
      p = #s + 1
    end
    s, added = sub(s, 1, p - 1) .. pack('>I4' .. f, at, prev) .. sub(s, p), true
  end
  s = raise(s, 4, w, p, n)
  if #s < FIRST then
    call('DEL', r)
    return nil
  end
  if added and #s > MANY * size and rank(s, '>I4', size, FIRST, start + stretch) - rank(s, '>I4', size, FIRST, start) >= FEW * size then
    s = bundle(r, s, w, f, origin, x, ttl)
  end
  (put or store)(r, s, ttl)
  return s
end
