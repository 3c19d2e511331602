-- What few hits need: those that come late, those taken back, those that no
-- longer fit into what was there.

local sub = string.sub

local function wide(sum)
  return sum < 65536 and 2 or sum < 4294967296 and 4 or 7
end

-- Slots and running sums of the buckets in a leaf.
local function read(name, kind)
  local v, slots, sums = call('GET', name) or '', {}, {}
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

-- Writes these as the leaf of share hits, whose last bucket, in slot last, only
-- the root has. Returns its kind.
local function write(name, slots, sums, last, share, ttl)
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
  if #parts == 0 then
    call('DEL', name)
  else
    call('SET', name, table.concat(parts), 'PX', ttl)
  end
  return w == 0 and 1 or w == 2 and 2 or w == 4 and 3 or 4
end

-- Leaf written anew, for what it was appended to since: sparse to dense, and
-- without the room to grow. Returns its kind.
local function rewrite(name, kind, last, share, ttl)
  if kind == 1 then
    local slots, sums = read(name, kind)
    return write(name, slots, sums, last, share, ttl)
  end
  local v = call('GET', name)
  if v then
    call('SET', name, v, 'PX', ttl)
  end
  return kind
end

-- Root s with the buckets in one stretch with position x, all its own, moved to a
-- leaf.
local function bundle(r, s, w, f, origin, x, ttl)
  local start, size, slots, sums = x - x % LEAF - origin, 4 + w, {}, {}
  local p, rest = rank(s, '>I4', size, 8 + w, start), rank(s, '>I4', size, 8 + w, start + LEAF)
  local prev = unpack(f, s, p - w)
  for q = p, rest - 1, size do
    local at, sum = unpack('>I4' .. f, s, q)
    slots[#slots + 1], sums[#sums + 1] = (at - start) / 8, sum - prev
  end
  local last, share = table.remove(slots), table.remove(sums)
  local kind = write(r .. ':' .. (x - x % LEAF - BIAS) / LEAF, slots, sums, last, share, ttl)
  return sub(s, 1, p - 1) .. pack('>I4' .. f, start + 8 * last + kind, prev + share) .. sub(s, rest)
end

-- Sums of the entries from byte from on, d more.
local function add(s, w, f, from, d)
  local parts = {sub(s, 1, from - 1)}
  for p = from, #s, 4 + w do
    parts[#parts + 1] = sub(s, p, p + 3) .. pack(f, unpack(f, s, p + 4) + d)
  end
  return table.concat(parts)
end

-- Root s in which sums start anew, so that n more find room, and positions if x
-- finds none. What is too far away from x for that is as good as gone.
local function renew(s, w, f, origin, n, x)
  local base, total = unpack(f, s, 8), unpack(f, s, #s - w + 1)
  if total - base + n > MOST then
    return false
  end
  local wider = wide((total - base + n) * 2)
  local g, start, parts, gone = '>I' .. wider, origin, {}, 0
  if x < origin or x - origin >= 4294967296 - LEAF then
    start = x - x % LEAF - BACK
  end
  for p = 8 + w, #s, 4 + w do
    local at, sum = unpack('>I4' .. f, s, p)
    at, sum = at + origin - start, sum - base
    if at < 0 then
      gone = sum
    elseif at < 4294967296 then
      parts[#parts + 1] = pack('>I4' .. g, at, sum)
    end
  end
  return pack('>I1I6' .. g, wider, start, gone) .. table.concat(parts), wider, g, start
end

-- change counts n more at position x of root r, or takes -n back, down to none,
-- wherever that is. s is the root's value, nil if there is none. It returns the
-- new value, and false if the sums would grow too large.
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
  if #s >= from and unpack('>I4', s, from) < stale - origin then
    s = sub(s, 1, 7) .. sub(s, rank(s, '>I4', size, from, stale - origin) - w)
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
    local name, share = r .. ':' .. (x - x % LEAF - BIAS) / LEAF, unpack(f, s, p + 4) - prev
    local slot, last, i = (at - start) / 8, (entry - start - kind) / 8, 1
    if kind > 1 and slot < last then
      -- In the middle of a dense leaf only the sums after it change.
      local g, v = kind == 2 and 2 or kind == 3 and 4 or 7
      v, g = call('GETRANGE', name, slot * g, -1), '>I' .. g
      local size = #pack(g, 0)
      if #v == (last - slot) * size and share + n < 256 ^ size then
        local under = slot > 0 and unpack(g, call('GETRANGE', name, (slot - 1) * size, slot * size - 1)) or 0
        n = math.max(n, under - unpack(g, v))
        local parts = {}
        for q = 1, #v, size do
          parts[#parts + 1] = pack(g, unpack(g, v, q) + n)
        end
        call('SETRANGE', name, slot * size, table.concat(parts))
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
    local slots, sums = read(name, kind)
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
      kind = write(name, slots, sums, last, rest, ttl)
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
