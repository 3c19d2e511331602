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
local function slowly()
local sub = string.sub
local function bytes(sum)
  return sum < 65536 and 2 or sum < 4294967296 and 4 or 7
end
local function read(r, x, kind)
  local v, slots, sums = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10) or '', {}, {}
  local wide, last = (kind < 3 and 2 or kind == 3 and 4 or 7), 0
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
local function write(r, x, kind, slots, sums, last, share, ttl)
  local parts, wide, was = {}, bytes(share), kind > 0 and r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10
  if wide == 2 and #slots * 4 < 1200 then
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
  local name = r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10
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
local function rewrite(r, x, kind, last, share, ttl)
  if kind == 1 then
    local slots, sums = read(r, x, kind)
    return write(r, x, kind, slots, sums, last, share, ttl)
  end
  local v = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10)
  if v then
    call('SET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10, v, 'PX', ttl)
  end
  return kind
end
local function bundle(r, s, w, f, origin, x, ttl)
  local start, size, slots, sums = x - x % stretch - origin, 4 + w, {}, {}
  local p, rest = rank(s, '>I4', size, (8 + w), start), rank(s, '>I4', size, (8 + w), start + stretch)
  if p == (8 + w) and unpack(f, s, 12 + w) == unpack(f, s, 8) then
    p = p + size
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
local function renew(s, w, f, origin, n, x)
  local base, total = unpack(f, s, 8), unpack(f, s, #s - w + 1)
  if total - base + n > 9007199254740991 then
    return false
  end
  local wider = bytes((total - base + n) * 2)
  local g, start, parts, gone = '>I' .. wider, origin, {}, -1
  if (x < origin or x - origin >= 4294967296 - stretch) then
    start = x - x % stretch - 3456000000
  end
  for p = (8 + w), #s, 4 + w do
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
local function change(r, s, x, n, stale, ttl)
  if not s then
    if n > 0 then
      local w, origin = bytes(n), x - x % stretch - 3456000000
      s = pack('>I1I6I' .. w .. 'I4I' .. w, w, origin, 0, x - origin, n)
      call('SET', r, s, 'PX', ttl)
    end
    return s
  end
  local w, origin = unpack('>I1I6', s)
  local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
  if unpack('>I4', s, (8 + w)) < stale - origin then
    local q = rank(s, '>I4', size, (8 + w), stale - origin)
    local sum, edge = s:sub(q - w, q - 1), unpack('>I4', s, q - w - 4)
    s = s:sub(1, 7) .. sum .. pack('>I4', edge - edge % 8) .. sum .. s:sub(q)
  end
  local total = unpack(f, s, #s - w + 1)
  if n < 0 and (x < origin or x - origin >= 4294967296 - stretch) then
    return s
  end
  if (x < origin or x - origin >= 4294967296 - stretch) or total + n > 9007199254740991 or total + n >= 256 ^ w then
    s, w, f, origin = renew(s, w, f, origin, n, x)
    if not s then
      return false
    end
    size = 4 + w
  end
  local at = x - origin
  if #s > (8 + w) and unpack(f, s, 12 + w) == unpack(f, s, 8) and at <= unpack('>I4', s, (8 + w)) then
    if n < 0 then
      return s
    end
    s = sub(s, 1, 7 + w) .. sub(s, (8 + w) + size)
  end
  local p, start = rank(s, '>I4', size, (8 + w), at), at - at % stretch
  local entry = p < #s and unpack('>I4', s, p) or -8
  if p > (8 + w) and (entry % 8 == 0 or entry < start or entry >= start + stretch) then
    local left = unpack('>I4', s, p - size)
    if left % 8 > 0 and left >= start then
      p, entry = p - size, left
    end
  end
  local prev, kind, added = unpack(f, s, p - w), entry % 8
  if kind > 0 and entry >= start and entry < start + stretch then
    local name, share, wide = r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10, unpack(f, s, p + 4) - prev, (kind < 3 and 2 or kind == 3 and 4 or 7)
    local slot, last, g = (at - start) / 8, (entry - start - kind) / 8, '>I' .. wide
    local v = kind > 1 and slot < last and call('GETRANGE', name, slot * wide, -1)
    if v and #v == (last - slot) * wide and share + n < 256 ^ wide then
      local under = slot > 0 and unpack(g, call('GETRANGE', name, (slot - 1) * wide, slot * wide - 1)) or 0
      n = math.max(n, under - unpack(g, v))
      call('SETRANGE', name, slot * wide, raise(v, 0, wide, 1, n))
    elseif kind > 1 and slot > last and n > 0 and last > 0 and share + n < 256 ^ wide and call('STRLEN', name) == last * wide then
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
    local last = #s > (8 + w) and unpack('>I4', s, #s - w - 3)
    if p > #s and last and last % 8 == 0 and last < start and #s > (#s > 4096 and 2 or 12) * size + 7 + w and unpack('>I4', s, #s - (#s > 4096 and 2 or 12) * size + 1) >= last - last % stretch then
      s = bundle(r, s, w, f, origin, last + origin, ttl)
      p = #s + 1
    end
    s, added = sub(s, 1, p - 1) .. pack('>I4' .. f, at, prev) .. sub(s, p), true
  end
  s = raise(s, 4, w, p, n)
  if #s < (8 + w) then
    call('DEL', r)
    return nil
  end
  if added and #s > 128 * size and rank(s, '>I4', size, (8 + w), start + stretch) - rank(s, '>I4', size, (8 + w), start) >= 12 * size then
    s = bundle(r, s, w, f, origin, x, ttl)
  end
  call('SET', r, s, 'PX', ttl)
  return s
end
return change, bundle, rewrite
end
local function before(r, s, x)
  local w, origin = unpack('>I1I6', s)
  local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
  local at = x - origin
  local p = rank(s, '>I4', size, (8 + w), at)
  local sum, entry = unpack(f, s, p - w), p < #s and unpack('>I4', s, p) or 0
  local kind = entry % 8
  if kind > 0 and entry - entry % stretch < at then
    local slot, under = at % stretch / 8, 0
    if kind == 1 then
      local v = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10)
      local q = v and rank(v, '>I2', 4, 1, slot) or 1
      under = q > 1 and unpack('>I2', v, q - 2) or 0
    else
      local wide = (kind < 3 and 2 or kind == 3 and 4 or 7)
      local v = call('GETRANGE', r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10, (slot - 1) * wide, slot * wide - 1)
      under = v ~= '' and unpack('>I' .. wide, v) or 0
    end
    if under > unpack(f, s, p + 4) - sum then
      error('ABACUS foreign', 0)
    end
    sum = sum + under
  end
  return sum
end
local function leaf(r, s, x)
  local w, origin = unpack('>I1I6', s)
  local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
  local p = rank(s, '>I4', size, (8 + w), x - origin)
  if p == (8 + w) and unpack(f, s, 12 + w) == unpack(f, s, 8) then
    p = p + size
  end
  local entry = p < #s and unpack('>I4', s, p) or 0
  local kind = entry % 8
  return kind > 0 and entry + origin < x + stretch and call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10)
end
local request, roots, reply, time = ARGV[1], {}, {}, 0
local mode, any, due, n, cursor = unpack('>I1I1I7I7', request)
local adds, begin = n > 0 and mode == 0, cursor
for i = 1, #KEYS do
  local s, ttl, stale, oldest, changes, tells, whole, leaves = call('GET', KEYS[i])
  stretch, ttl, stale, oldest, changes, tells, whole, leaves, cursor = unpack('>I2I6I6I6I2I2I1I2', request, cursor)
  cursor = cursor + 6 * (changes + 2 * tells + leaves)
  roots[i] = s or nil
  local w = s and string.byte(s)
  if s and (w ~= 2 and w ~= 4 and w ~= 7 or #s < 11 + 2 * w or (#s - 7 - w) % (4 + w) ~= 0) then
    return redis.error_reply('ABACUS foreign')
  elseif s and adds and changes > 0 then
    local w, origin = unpack('>I1I6', s)
    local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
    local n, total = n * changes, unpack(f, s, #s - w + 1)
    if any == 0 and unpack(f, s, 12 + w) == unpack(f, s, 8) and oldest - origin <= unpack('>I4', s, (8 + w)) then
      return redis.error_reply('ABACUS stale')
    elseif total - unpack(f, s, 8) + n > 9007199254740991 and total - unpack(f, s, rank(s, '>I4', size, (8 + w), stale - origin) - w) + n > 9007199254740991 then
      return redis.error_reply('ABACUS full')
    end
  end
end
if due > 0 then
  time = call('TIME')
  time = time[1] * 1000000 + time[2]
  if time > due then
    return '\2' .. pack('>I7', time)
  end
end
local change = n > 0 and slowly()
cursor = begin
for i = 1, #KEYS do
  local r, s, ttl, stale, oldest, changes, tells, whole, leaves, x, to = KEYS[i], roots[i]
  stretch, ttl, stale, oldest, changes, tells, whole, leaves, cursor = unpack('>I2I6I6I6I2I2I1I2', request, cursor)
  for _ = 1, changes do
    x, cursor = unpack('>I6', request, cursor)
    s = change(r, s, x, mode == 2 and -n or n, stale, ttl)
    if s == false then
      return redis.error_reply('ABACUS full')
    end
  end
  for _ = 1, tells do
    x, to, cursor = unpack('>I6I6', request, cursor)
    reply[#reply + 1] = s and before(r, s, to) - before(r, s, x) or 0
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
