-- What few hits need: those that come late, those taken back, those that no
-- longer fit into what was there.

local sub = string.sub

local function wide(sum)
  return sum < 65536 and 2 or sum < 4294967296 and 4 or 7
end

-- Name of the leaf of that kind that holds position x.
local function leaf(r, x, kind)
  return r .. ':' .. (x - x % LEAF - BIAS) / LEAF + kind / 10
end

-- Slots and running sums of the buckets in the leaf of position x.
local function read(r, x, kind)
  local v, slots, sums = call('GET', leaf(r, x, kind)) or '', {}, {}
  local w = kind < 3 and 2 or kind == 3 and 4 or 7
  local f, size, last = '>I' .. w, kind == 1 and 4 or w, 0
  for p = 1, #v - size + 1, size do
    local sum = unpack(f, v, p + size - w)
    if sum > last then
      slots[#slots + 1] = kind == 1 and unpack('>I2', v, p) or (p - 1) / w
      sums[#sums + 1] = sum
      last = sum
    end
  end
  return slots, sums
end

-- Writes these as the leaf of position x, of share hits, whose last bucket, in
-- slot last, only the root has; in place of one of the kind was, 0 for none.
-- Returns its kind.
local function write(r, x, was, slots, sums, last, share, ttl)
  local parts, w = {}, wide(share)
  if w == 2 and #slots * 4 < SPARSE then
    for i, slot in ipairs(slots) do
      parts[i] = pack('>I2I2', slot, sums[i])
    end
    w = 0
  else
    local f, filled, sum = '>I' .. w, 0, string.rep('\0', w)
    for i, slot in ipairs(slots) do
      parts[#parts + 1] = string.rep(sum, slot - filled)
      filled, sum = slot, pack(f, sums[i])
    end
    parts[#parts + 1] = string.rep(sum, last - filled)
  end
  local kind = w == 0 and 1 or w == 2 and 2 or w == 4 and 3 or 4
  if was ~= kind and was > 0 then
    call('DEL', leaf(r, x, was))
  end
  if #parts == 0 then
    call('DEL', leaf(r, x, kind))
  else
    call('SET', leaf(r, x, kind), table.concat(parts), 'PX', ttl)
  end
  return kind
end

-- Leaf written anew, for what it was appended to since: sparse to dense, and
-- without the room to grow. Returns its kind.
local function rewrite(r, x, kind, last, share, ttl)
  if kind == 1 then
    local slots, sums = read(r, x, kind)
    return write(r, x, kind, slots, sums, last, share, ttl)
  end
  local v = call('GET', leaf(r, x, kind))
  if v then
    call('SET', leaf(r, x, kind), v, 'PX', ttl)
  end
  return kind
end

-- Root s with the buckets in one stretch with position x, all its own, moved to a
-- leaf.
local function bundle(r, s, w, f, origin, x, ttl)
  local start, size, slots, sums = x - x % LEAF - origin, 4 + w, {}, {}
  local p, rest = rank(s, '>I4', size, 8 + w, start), rank(s, '>I4', size, 8 + w, start + LEAF)
  if p == 8 + w and unpack(f, s, p + 4) == unpack(f, s, 8) then
    p = p + size -- the edge stays where it is
  end
  local prev = unpack(f, s, p - w)
  for q = p, rest - 1, size do
    local at, sum = unpack('>I4' .. f, s, q)
    slots[#slots + 1], sums[#sums + 1] = (at - start) / 8, sum - prev
  end
  local last, share = table.remove(slots), table.remove(sums)
  local kind = write(r, x, 0, slots, sums, last, share, ttl)
  return sub(s, 1, p - 1) .. pack('>I4' .. f, start + 8 * last + kind, prev + share) .. sub(s, rest)
end

-- Sums of the entries from byte from on, d more. Eight at a time take a third of
-- the time of one by one.
local function add(s, w, f, from, d)
  local parts, size = {sub(s, 1, from - 1)}, 4 + w
  local eight = '>' .. string.rep('I4I' .. w, 8)
  while #s - from + 1 >= 8 * size do
    local a, i, b, j, c, k, e, l, g, m, h, n, o, q, t, u = unpack(eight, s, from)
    parts[#parts + 1] = pack(eight, a, i + d, b, j + d, c, k + d, e, l + d, g, m + d, h, n + d, o, q + d, t, u + d)
    from = from + 8 * size
  end
  for p = from, #s, size do
    parts[#parts + 1] = sub(s, p, p + 3) .. pack(f, unpack(f, s, p + 4) + d)
  end
  return table.concat(parts)
end

-- Sums of w bytes in v, n more each.
local function raise(v, w, n)
  local one, eight, parts, p = '>I' .. w, '>' .. string.rep('I' .. w, 8), {}, 1
  while #v - p + 1 >= 8 * w do
    local a, b, c, d, e, f, g, h = unpack(eight, v, p)
    parts[#parts + 1] = pack(eight, a + n, b + n, c + n, d + n, e + n, f + n, g + n, h + n)
    p = p + 8 * w
  end
  for q = p, #v, w do
    parts[#parts + 1] = pack(one, unpack(one, v, q) + n)
  end
  return table.concat(parts)
end

-- Root s without what is stale: an edge stands for it, and what it has counted is
-- in the sum before the first entry.
local function drop(s, w, origin, stale)
  if unpack('>I4', s, 8 + w) < stale - origin then
    local q = rank(s, '>I4', 4 + w, 8 + w, stale - origin)
    local sum, at = sub(s, q - w, q - 1), unpack('>I4', s, q - w - 4)
    return sub(s, 1, 7) .. sum .. pack('>I4', at - at % 8) .. sum .. sub(s, q)
  end
  return s
end

-- Root s in which sums start anew, so that n more find room, and positions if x
-- finds none. What is too far away from x for that is as good as gone.
local function renew(s, w, f, origin, n, x)
  local base, total = unpack(f, s, 8), unpack(f, s, #s - w + 1)
  if total - base + n > MOST then
    return false
  end
  local wider = wide((total - base + n) * 2)
  local g, start, parts, gone = '>I' .. wider, origin, {}, -1
  if x < origin or x - origin >= 4294967296 - LEAF then
    start = x - x % LEAF - BACK
  end
  for p = 8 + w, #s, 4 + w do
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

-- change counts n more at position x of root r, or takes -n back, down to none,
-- wherever that is. s is the root's value, nil if there is none. It returns the
-- new value, and false if the sums would grow too large. Nothing is written then.
local function change(r, s, x, n, stale, ttl)
  if not s then
    if n > 0 then
      local w, origin = wide(n), x - x % LEAF - BACK
      s = pack('>I1I6I' .. w .. 'I4I' .. w, w, origin, 0, x - origin, n)
      call('SET', r, s, 'PX', ttl)
    end
    return s
  end
  local w, origin = unpack('>I1I6', s)
  local f = '>I' .. w
  s = drop(s, w, origin, stale)
  local total = unpack(f, s, #s - w + 1)
  local far = x < origin or x - origin >= 4294967296 - LEAF
  if n < 0 and far then
    return s
  end
  if far or total + n > MOST or total + n >= 256 ^ w then
    s, w, f, origin = renew(s, w, f, origin, n, x)
    if not s then
      return false
    end
  end
  local size, from, at = 4 + w, 8 + w, x - origin
  if #s > from and unpack(f, s, from + 4) == unpack(f, s, 8) then
    if at <= unpack('>I4', s, from) then
      if n < 0 then
        return s
      end
      -- A clock was set back: from now on what was dropped there is as if it
      -- had never been.
      s = sub(s, 1, from - 1) .. sub(s, from + size)
    end
  end
  local p, start = rank(s, '>I4', size, from, at), at - at % LEAF
  local entry = p < #s and unpack('>I4', s, p) or -8
  if p > from and (entry % 8 == 0 or entry < start or entry >= start + LEAF) then
    -- Is it after the last bucket of a leaf?
    local left = unpack('>I4', s, p - size)
    if left % 8 > 0 and left >= start then
      p, entry = p - size, left
    end
  end
  local prev, kind = unpack(f, s, p - w), entry % 8
  if kind > 0 and entry >= start and entry < start + LEAF then
    local name, share = leaf(r, x, kind), unpack(f, s, p + 4) - prev
    local slot, last, i = (at - start) / 8, (entry - start - kind) / 8, 1
    if kind > 1 and slot < last then
      -- In the middle of a dense leaf only the sums after it change.
      local size = kind == 2 and 2 or kind == 3 and 4 or 7
      local v, g = call('GETRANGE', name, slot * size, -1), '>I' .. size
      if #v == (last - slot) * size and share + n < 256 ^ size then
        local under = slot > 0 and unpack(g, call('GETRANGE', name, (slot - 1) * size, slot * size - 1)) or 0
        n = math.max(n, under - unpack(g, v))
        call('SETRANGE', name, slot * size, raise(v, size, n))
        s = add(s, w, f, p, n)
        call('SET', r, s, 'PX', ttl)
        return s
      end
    end
    if kind > 1 and slot > last and n > 0 then
      -- After its end it grows, though the root goes on.
      local size = kind == 2 and 2 or kind == 3 and 4 or 7
      if share + n < 256 ^ size and last > 0 and call('STRLEN', name) == last * size then
        call('APPEND', name, string.rep(pack('>I' .. size, share), slot - last))
        s = add(sub(s, 1, p - 1) .. pack('>I4', at + kind) .. sub(s, p + 4), w, f, p, n)
        call('SET', r, s, 'PX', ttl)
        return s
      end
    end
    local slots, sums = read(r, x, kind)
    slots[#slots + 1], sums[#sums + 1] = last, share
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
      local last, rest = table.remove(slots), table.remove(sums)
      kind = write(r, x, kind, slots, sums, last, rest, ttl)
      s = sub(s, 1, p - 1) .. pack('>I4', start + 8 * last + kind) .. sub(s, p + 4)
    else
      call('DEL', name)
      s = sub(s, 1, p - 1) .. sub(s, p + size)
    end
    s = add(s, w, f, p, n)
  elseif entry == at then
    local count = unpack(f, s, p + 4) - prev
    n = math.max(n, -count)
    if n == -count then
      s = sub(s, 1, p - 1) .. sub(s, p + size)
    end
    s = add(s, w, f, p, n)
  elseif n < 0 then
    return s
  else
    if p > #s and #s >= from then
      -- A new stretch of time may begin; then the last one is put in order.
      local last, few = unpack('>I4', s, #s - size + 1), #s > 4096 and 2 or FEW
      if last % 8 == 0 and last < start and #s > few * size + from - 1 and unpack('>I4', s, #s - few * size + 1) >= last - last % LEAF then
        s = bundle(r, s, w, f, origin, last + origin, ttl)
        p = #s + 1
      end
    end
    s = add(sub(s, 1, p - 1) .. pack('>I4' .. f, at, prev) .. sub(s, p), w, f, p, n)
    if #s > MANY * size then
      local first, rest = rank(s, '>I4', size, from, start), rank(s, '>I4', size, from, start + LEAF)
      if rest - first >= FEW * size then
        s = bundle(r, s, w, f, origin, x, ttl)
      end
    end
  end
  if #s < from then
    call('DEL', r)
    return nil
  end
  call('SET', r, s, 'PX', ttl)
  return s
end
