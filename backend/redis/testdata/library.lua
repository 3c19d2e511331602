#!lua name=LIBRARY
local function make()
  local spread, unpack, pack, call, byte, sub = unpack, struct.unpack, struct.pack, redis.call, string.byte, string.sub
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
  local function whole(v)
    local w = byte(v)
    if w ~= 2 and w ~= 4 and w ~= 7 then
      error('ABACUS foreign', 0)
    elseif #v == (11 + w) then
      return v .. string.rep('\0', 8 + 4 * w)
    elseif #v < (15 + 4 * w) + 4 + w or (#v - (15 + 4 * w)) % (4 + w) ~= 0 or #v < (15 + 4 * w) + unpack('>I3', v, (11 + w) + 2) * (4 + w) then
      error('ABACUS foreign', 0)
    end
    return v
  end
  local function roomFor(count, w)
    if count < 8 then
      return count == 0 and 1 or 0
    elseif count >= 160 then
      return 0
    end
    local head, size = (15 + 4 * w) + 6, 4 + w
    local need, unit = head + (count + 4 + count / 16) * size, 16
    while need > 8 * unit do
      unit = 2 * unit
    end
    local room = (need + -need % unit - head) / size - count
    return room - room % 1
  end
  local function list(v)
    v = whole(v)
    local w = byte(v)
    return sub(v, 1, 7) .. sub(v, (15 + 4 * w) + 1 - w, (15 + 4 * w) + unpack('>I3', v, (11 + w) + 2) * (4 + w)) .. sub(v, 8, (11 + w))
  end
  local function often(times, n, left)
    if n == 0 or left >= n * times then
      return times
    end
    return math.max(1, (left - left % n) / n)
  end
  local function holds(r, v, w, f, origin, newest, stop, bound, p, need)
    local g, size, from, lo, hi = f, 4 + w, p + 4, 0, (stop - p) / (4 + w)
    local last = hi
    if need <= hi then
      hi = need - 1
    end
    if hi > 0 and unpack(g, v, from + (hi - 1) * size) < bound then
      lo = hi
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
    p = p + lo * size
    local entry = lo < last and unpack('>I4', v, p) or newest
    local x, kind = entry + origin, entry % 8
    if kind == 0 then
      return x
    end
    local wide, skip = (kind < 3 and 2 or kind == 3 and 4 or 7), kind == 1 and 2 or 0
    bound = bound - unpack(f, v, p - w)
    v = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4')) or ''
    g, size, from = '>I' .. wide, skip + wide, 1 + skip
    lo, hi = 0, #v / size
    while lo < hi do
      local mid = lo + hi
      mid = (mid - mid % 2) / 2
      if unpack(g, v, from + mid * size) < bound then
        lo = mid + 1
      else
        hi = mid
      end
    end
    if lo * size == #v then
      return x
    end
    return x - x % stretch + 8 * (kind == 1 and unpack('>I2', v, 1 + lo * size) or lo)
  end
  local function before(r, s, x)
    local w, origin = unpack('>I1I6', s)
    local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
    local at = x - origin
    local p = rank(s, '>I4', size, (8 + w), at)
    local sum = unpack(f, s, p - w)
    if p < #s then
      local entry, upto = unpack('>I4' .. f, s, p)
      local kind = entry % 8
      if kind > 0 and entry - entry % stretch < at then
        local slot, under = at % stretch / 8, 0
        if kind == 1 then
          local v = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'))
          local q = v and rank(v, '>I2', 4, 1, slot) or 1
          under = q > 1 and unpack('>I2', v, q - 2) or 0
        else
          local wide = (kind < 3 and 2 or kind == 3 and 4 or 7)
          local v = call('GETRANGE', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'), (slot - 1) * wide, slot * wide - 1)
          under = v ~= '' and unpack('>I' .. wide, v) or 0
        end
        if under > upto - sum then
          error('ABACUS foreign', 0)
        end
        sum = sum + under
      end
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
    return kind > 0 and entry + origin < x + stretch and call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'))
  end
  local function changes()
    local function bytes(sum)
      return sum < 65536 and 2 or sum < 4294967296 and 4 or 7
    end
    local function read(r, x, kind)
      local v, slots, sums = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4')) or '', {}, {}
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
      local parts, wide, was = {}, bytes(share), kind > 0 and r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4')
      local least = 0
      for i = 1, #slots + 1 do
        local slot = slots[i] or last
        if slot < least or 8 * slot >= stretch then
          error('ABACUS foreign', 0)
        end
        least = slot
      end
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
      local name = r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4')
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
    local function store(r, s, ttl)
      local w, origin = unpack('>I1I6', s)
      local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
      local count, base, entry = (#s - 7 - w) / size - 1, unpack(f, s, 8), unpack('>I4', s, #s - w - 3)
      if count == 0 and base == 0 then
        call('SET', r, sub(s, 1, 7) .. sub(s, 8 + w), 'PX', ttl)
        return
      end
      local start = entry - entry % stretch
      local here, prior = rank(s, '>I4', size, (8 + w), start), rank(s, '>I4', size, (8 + w), start - stretch)
      local room = roomFor(count, w)
      call('SET', r, sub(s, 1, 7) .. sub(s, -size) .. pack('>I1I3' .. f .. f, room, count, unpack(f, s, here - w), unpack(f, s, prior - w)) ..
        sub(s, 8, -size - 1) .. string.rep('\0', room * size), 'PX', ttl)
    end
    local function rewrite(r, x, kind, last, share, ttl)
      if kind == 1 then
        local slots, sums = read(r, x, kind)
        return write(r, x, kind, slots, sums, last, share, ttl)
      end
      local v = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'))
      if v then
        call('SET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'), v, 'PX', ttl)
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
      local last, share = unpack('>I4' .. f, s, rest - size)
      last, share = (last - start) / 8, share - prev
      local kind, from = 1, p
      if share < 65536 and (rest - p) / size * 4 < 1200 then
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
          call('SET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'), table.concat(parts), 'PX', ttl)
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
    local function close(r, s, w, f, origin, last, limit, ttl)
      local size = 4 + w
      if last % 8 > 1 then
        rewrite(r, last + origin, last % 8, 0, 0, ttl)
      elseif last % 8 == 0 and #s > limit * size + 7 + w and unpack('>I4', s, #s - limit * size + 1) >= last - last % stretch then
        s = bundle(r, s, w, f, origin, last + origin, ttl)
      end
      return s
    end
    local function insert(r, s, at, n, stale, limit, ttl, put)
      local w, origin = unpack('>I1I6', s)
      local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
      local total, last, start = unpack(f, s, #s - w + 1), unpack('>I4', s, #s - w - 3), at - at % stretch
      if last < start then
        s = close(r, s, w, f, origin, last, limit, ttl)
      end
      if unpack('>I4', s, (8 + w)) < stale - origin then
        local q = rank(s, '>I4', size, (8 + w), stale - origin)
        local sum, edge = s:sub(q - w, q - 1), unpack('>I4', s, q - w - 4)
        s = s:sub(1, 7) .. sum .. pack('>I4', edge - edge % 8) .. sum .. s:sub(q)
      end
      s = s .. pack('>I4' .. f, at, total + n)
      if last >= start and #s > (128 + 1) * size and unpack('>I4', s, #s - (12 + 1) * size + 1) >= start then
        s = bundle(r, s, w, f, origin, at + origin, ttl)
      end
      return (put or store)(r, s, ttl)
    end
    local function change(r, s, x, n, stale, ttl, put)
      if not s then
        if n > 0 then
          local w, origin = bytes(n), x - x % stretch - 3456000000
          s = pack('>I1I6I' .. w .. 'I4I' .. w, w, origin, 0, x - origin, n)
          store(r, s, ttl)
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
        local name, share, wide = r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'), unpack(f, s, p + 4) - prev, (kind < 3 and 2 or kind == 3 and 4 or 7)
        local slot, last, g = (at - start) / 8, (entry - start - kind) / 8, '>I' .. wide
        local v = kind > 1 and slot < last and call('GETRANGE', name, slot * wide, -1)
        local few = kind == 1 and n > 0 and slot < last and share + n < 65536 and call('GET', name)
        if few and #few < 1200 - 4 and #few % 4 == 0 then
          local q = rank(few, '>I2', 4, 1, slot)
          if q < #few and unpack('>I2', few, q) == slot then
            few = raise(few, 2, 2, q, n)
          else
            local under = q > 1 and unpack('>I2', few, q - 2) or 0
            few = sub(few, 1, q - 1) .. pack('>I2I2', slot, under + n) .. raise(sub(few, q), 2, 2, 1, n)
          end
          call('SET', name, few, 'PX', ttl)
        elseif v and #v == (last - slot) * wide and share + n < 256 ^ wide then
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
        if p > #s and last and last < start then
          s = close(r, s, w, f, origin, last, #s > 4096 and 2 or 12, ttl)
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
      (put or store)(r, s, ttl)
      return s
    end
    return change, bundle, rewrite, insert
  end
  local change, bundle, rewrite, insert = changes()
  local function slowly()
    return change, bundle, rewrite, insert
  end
  local function open(v)
    local w = byte(v)
    if #v == (11 + w) and (w == 2 or w == 4 or w == 7) then
      local _, origin, entry, total = unpack(w == 2 and '>I1I6I4I2' or w == 4 and '>I1I6I4I4' or '>I1I6I4I7', v)
      return w, origin, entry, total, 0, 0, 0, 0, 0, -1
    elseif w ~= 2 and w ~= 4 and w ~= 7 or #v < (15 + 4 * w) + 4 + w then
      error('ABACUS foreign', 0)
    end
    local _, origin, entry, total, room, count, here, prior, base, first, sum = unpack((w == 2 and '>I1I6I4I2I1I3I2I2I2I4I2' or w == 4 and '>I1I6I4I4I1I3I4I4I4I4I4' or '>I1I6I4I7I1I3I7I7I7I4I7'), v)
    if count == 0 then
      first, sum = entry, total
    end
    return w, origin, entry, total, room, count, here, prior, base, sum == base and first or -1
  end
  local texts, known = {}, 0
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
  local function widen(r, at, sum, stale, ttl, w, origin, entry, total, count, here, prior)
    local f, size, first = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w, (15 + 4 * w) + 1
    local v, stop, old, edge = whole(call('GET', r)), first + count * size, first - w, ''
    local bound = stale - origin
    if count > 1 and unpack('>I4', v, first + size) < bound then
      local g, from, lo, hi = '>I4', first, 1, count
      while lo < hi do
        local mid = lo + hi
        mid = (mid - mid % 2) / 2
        if unpack(g, v, from + mid * size) < bound then
          lo = mid + 1
        else
          hi = mid
        end
      end
      old = first + lo * size
      local dropped, last = sub(v, old - w, old - 1), unpack('>I4', v, old - size)
      edge = dropped .. pack('>I4', last - last % 8) .. dropped
      count = count - lo + 1
      local least = unpack(f, dropped)
      here, prior = math.max(here, least), math.max(prior, least)
    end
    count = count + 1
    local room = roomFor(count, w)
    call('SET', r, sub(v, 1, 7) .. pack((w == 2 and '>I4I2I1I3I2I2' or w == 4 and '>I4I4I1I3I4I4' or '>I4I7I1I3I7I7'), at, sum, room, count, here, prior) .. edge .. sub(v, old, stop - 1) ..
      pack((w == 2 and '>I4I2' or w == 4 and '>I4I4' or '>I4I7'), entry, total) .. string.rep('\0', room * size), 'PX', text(ttl))
  end
  local function ending(r, from, w, origin, entry, total, count)
    local skip = count >= 160 and count - 150 or 0
    while skip > 0 do
      local tail = call('GETRANGE', r, text((15 + 4 * w) - w + skip * (4 + w)), text((15 + 4 * w) - 1 + count * (4 + w)))
      if unpack('>I4', tail, w + 1) < from then
        return pack('>I1I6', w, origin) .. tail .. pack((w == 2 and '>I4I2' or w == 4 and '>I4I4' or '>I4I7'), entry, total), skip
      end
      skip = count - 4 * (count - skip)
    end
    return list(call('GET', r))
  end
  local function putter(w, skip, here, prior)
    return skip and function(r, s, ttl)
      local size = 4 + w
      local entry, total = unpack((w == 2 and '>I4I2' or w == 4 and '>I4I4' or '>I4I7'), s, #s - size + 1)
      call('SETRANGE', r, text((15 + 4 * w) + skip * size), sub(s, 8 + w, -size - 1))
      call('SETRANGE', r, '7', pack((w == 2 and '>I4I2I1I3I2I2' or w == 4 and '>I4I4I1I3I4I4' or '>I4I7I1I3I7I7'), entry, total, 0, skip + (#s - 7 - w) / size - 1, here, prior))
      call('PEXPIRE', r, text(ttl))
    end
  end
  local function add(r, x, n, stale, ttl, w, origin, entry, total, room, count, here, prior)
    if not w then
      if n >= 65536 then
        slowly()(r, nil, x, n, stale, ttl)
      elseif not call('SET', r, pack('>I1I6I4I2', 2, x - x % stretch - 3456000000, x % stretch + 3456000000, n), 'PX', text(ttl), 'NX') then
        error('ABACUS foreign', 0)
      end
      return x
    end
    local at, kind, f = x - origin, entry % 8, (w == 2 and '>I2' or w == 4 and '>I4' or '>I7')
    local last, sum, name = entry - kind, total + n
    if at == last and sum < (w == 2 and 65536 or w == 4 and 4294967296 or 9007199254740991) then
      call('SETRANGE', r, '11', pack(f, sum))
      return x
    elseif (x < origin or x - origin >= 4294967296 - stretch) or sum >= (w == 2 and 65536 or w == 4 and 4294967296 or 9007199254740991) then
      local change, s = slowly(), list(call('GET', r))
      s = change(r, s, x, n, stale, ttl)
      local w, origin = unpack('>I1I6', s)
      local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
      return (s and unpack('>I4', s, #s - w - 3) + origin or 0)
    end
    local start = at - at % stretch
    if at < last then
      local begin, s, skip = entry - entry % stretch, ending(r, start, w, origin, entry, total, count)
      slowly()(r, s, x, n, skip and 0 or stale, ttl, putter(w, skip, at < begin and here + n or here, at < begin - stretch and prior + n or prior))
      return last + origin
    end
    if kind > 0 and last >= start then
      local share, wide, slot, was = total - here, (kind < 3 and 2 or kind == 3 and 4 or 7), at % stretch / 8, last % stretch / 8
      if share + n >= 256 ^ wide then
        slowly()(r, list(call('GET', r)), x, n, stale, ttl)
        return x
      elseif kind == 1 then
        name = r .. ':' .. text((x - x % stretch - 123695058124800) / stretch) .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4')
        local len = call('APPEND', name, pack('>I2I2', was, share))
        if len == 4 then
          call('PEXPIRE', name, text(ttl))
        elseif len >= 1200 then
          local _, _, rewrite = slowly()
          kind = rewrite(r, x, kind, slot, share, ttl)
        end
      else
        name = r .. ':' .. text((x - x % stretch - 123695058124800) / stretch) .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4')
        local sums = string.rep(pack('>I' .. wide, share), slot - was)
        if was == 0 or call('APPEND', name, sums) ~= slot * wide then
          call('SET', name, string.rep('\0', was * wide) .. sums, 'PX', text(ttl))
        end
      end
      call('SETRANGE', r, '7', pack((w == 2 and '>I4I2' or w == 4 and '>I4I4' or '>I4I7'), at + kind, sum))
      return x
    end
    local begins, many, size, limit = last < start, count >= 160, 4 + w, 12
    local first, whole = here, false
    if begins then
      here, prior = total, last >= start - stretch and here or total
    end
    if begins and many then
      limit = count * size > 4096 and 2 or limit
      local p = (15 + 4 * w) + (count - count % 8) / 8 * size
      whole = unpack('>I4', call('GETRANGE', r, text(p), text(p + 3))) < stale - origin
    end
    if whole or begins and (kind > 1 or total - first >= limit) or not begins and count >= 128 and total - first >= 12 then
      local _, _, _, insert = slowly()
      local s, skip = ending(r, whole and 0 or last - last % stretch, w, origin, entry, total, count)
      insert(r, s, at, n, skip and 0 or stale, limit, ttl, putter(w, skip, here, prior))
      return x
    end
    if room == 0 and not many then
      widen(r, at, sum, stale, ttl, w, origin, entry, total, count, here, prior)
      return x
    end
    if many and call('STRLEN', r) < (15 + 4 * w) + count * size then
      error('ABACUS foreign', 0)
    end
    room = many and 0 or room - 1
    call('SETRANGE', r, text((15 + 4 * w) + count * size), pack((w == 2 and '>I4I2' or w == 4 and '>I4I4' or '>I4I7'), entry, total))
    call('SETRANGE', r, '7', pack((w == 2 and '>I4I2I1I3I2I2' or w == 4 and '>I4I4I1I3I4I4' or '>I4I7I1I3I7I7'), at, sum, room, count + 1, here, prior))
    if begins then
      call('PEXPIRE', r, text(ttl))
    end
    return x
  end
  local function take(KEYS, ARGV)
    local request, counts, time, several = ARGV[1], '', 0, #KEYS > 1
    local mode, options, due, now, stale, ttl, n, flags, windows, cursor
    mode, options, due, now, stale, ttl, n, stretch, flags, windows, cursor = unpack('>I1I1I7I6I6I6I7I2I1I2', request)
    local any, x, max, w, f, origin, entry, total, room, count, here, prior, base, edge = options % 2
    local times = 1
    if options > 15 then
      times = unpack('>I7', request, #request - 6)
    end
    if mode >= 2 then
      cursor = 10
      for i = 1, #KEYS do
        now, stale, ttl, n, stretch, flags, windows, cursor = unpack('>I6I6I6I7I2I1I2', request, cursor)
        cursor = cursor + 13 * windows
        local v = n > 0 and (mode == 2 or flags < 2) and call('GET', KEYS[i])
        if v then
          slowly()(KEYS[i], list(v), now, -n * times, stale, ttl)
        end
      end
      return '\1'
    end
    if options % 16 > 7 and redis.REDIS_VERSION_NUM then
      if due > 0 then
        time = call('TIME')
        local begin = time[1] * 1000000
        if begin + 999999 > due or options % 8 > 3 then
          time = begin + time[2]
          if time > due then
            return '\2' .. pack('>I7', time)
          end
        else
          time = 0
        end
      end
      due = 0
      if not call('SET', KEYS[1], pack('>I1I6I4I2', 2, now - now % stretch - 3456000000, now % stretch + 3456000000, n), 'PX', text(ttl), 'NX', 'GET') then
        if windows == 1 and options % 8 < 4 then
          return 0
        end
        return '\1' .. string.rep('\0', 7 * windows) .. pack('>I6I7', now, time)
      end
    end
    local known
    if mode == 0 and options % 4 < 2 then
      local roots, bounds, fits, bound, second, third = several and {}, several and {}, true
      for i = 1, #KEYS do
        local v, start = call('GETRANGE', KEYS[i], '0', '53')
        if i > 1 then
          now, stale, ttl, n, stretch, flags, windows, cursor = unpack('>I6I6I6I7I2I1I2', request, cursor)
        end
        if v == '' then
          w, fits = false, n > 0 and not (several and call('GET', KEYS[i]))
        else
          w, origin, entry, total, room, count, here, prior, base, edge = open(v)
          start, known = entry - entry % stretch, not several
          fits = n > 0 and total + n < (w == 2 and 65536 or w == 4 and 4294967296 or 9007199254740991) and (edge < 0 or windows > 0 or any == 1 or now - origin > edge)
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
        if due > 0 then
          time = call('TIME')
          local begin = time[1] * 1000000
          if begin + 999999 > due or options % 8 > 3 then
            time = begin + time[2]
            if time > due then
              return '\2' .. pack('>I7', time)
            end
          else
            time = 0
          end
        end
        if not several then
          x = add(KEYS[1], now, n, stale, ttl, w, origin, entry, total, room, count, here, prior)
          if windows == 1 then
            if x == now and options % 8 < 4 then
              return bound
            end
            return pack('>I1I7I6I7', 1, bound, x, time)
          elseif windows == 0 then
            return '\1' .. pack('>I6I7', x, time)
          elseif windows == 2 then
            return pack('>I1I7I7I6I7', 1, second, bound, x, time)
          end
          return '\1' .. counts .. pack('>I7I7I7I6I7', third, second, bound, x, time)
        end
        local late = false
        for i = #KEYS, 1, -1 do
          if i < #KEYS then
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
        return '\1' .. counts .. pack('>I7', time)
      end
      counts = ''
    end
    local freed, fits, roots, hits, leaver = '', true, several and {}
    cursor = 10
    local owner, skip, full
    for i = 1, #KEYS do
      local r, v, from, size, first, stop = KEYS[i], call('GET', KEYS[i]), cursor
      now, stale, ttl, n, stretch, flags, windows, cursor = unpack('>I6I6I6I7I2I1I2', request, cursor)
      if flags % 2 == 0 then
        owner = i
      end
      if v then
        if not known then
          w, origin, entry, total, room, count, here, prior, base, edge = open(v)
        end
        f, size, first = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w, (15 + 4 * w) + 1
        stop = first + count * size
        if #v < stop or (#v - first + 1) % size > 0 then
          v = whole(v)
        end
        if total - base + n > 9007199254740991 then
          local s = list(v)
          if total - unpack(f, s, 8) + n > 9007199254740991 and total - unpack(f, s, rank(s, '>I4', size, (8 + w), stale - origin) - w) + n > 9007199254740991 then
            full = full or {}
            full[#full + 1] = flags > 1 and owner or 0
          end
        end
        if windows == 0 and any == 0 and now - origin <= edge then
          return redis.error_reply('ABACUS stale')
        end
        if times > 1 then
          times = often(times, n, 9007199254740991 - total + base)
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
          while lo < hi do
            local mid = lo + hi
            mid = (mid - mid % 2) / 2
            if unpack(g, v, from + mid * size) < bound then
              lo = mid + 1
            else
              hi = mid
            end
          end
          p = first + lo * size
          local sum = unpack(f, v, p - w)
          if lo < count then
            local entry, upto = unpack('>I4' .. f, v, p)
            local kind = entry % 8
            if kind > 0 and entry - entry % stretch < at then
              local slot, under = at % stretch / 8, 0
              if kind == 1 then
                local v = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'))
                local q = v and rank(v, '>I2', 4, 1, slot) or 1
                under = q > 1 and unpack('>I2', v, q - 2) or 0
              else
                local wide = (kind < 3 and 2 or kind == 3 and 4 or 7)
                local v = call('GETRANGE', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'), (slot - 1) * wide, slot * wide - 1)
                under = v ~= '' and unpack('>I' .. wide, v) or 0
              end
              if under > upto - sum then
                error('ABACUS foreign', 0)
              end
              sum = sum + under
            end
          elseif entry < at then
            sum = total
          else
            local upto = total
            local kind = entry % 8
            if kind > 0 and entry - entry % stretch < at then
              local slot, under = at % stretch / 8, 0
              if kind == 1 then
                local v = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'))
                local q = v and rank(v, '>I2', 4, 1, slot) or 1
                under = q > 1 and unpack('>I2', v, q - 2) or 0
              else
                local wide = (kind < 3 and 2 or kind == 3 and 4 or 7)
                local v = call('GETRANGE', r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4'), (slot - 1) * wide, slot * wide - 1)
                under = v ~= '' and unpack('>I' .. wide, v) or 0
              end
              if under > upto - sum then
                error('ABACUS foreign', 0)
              end
              sum = sum + under
            end
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
        return pack('>I1I7I6I6', 0, hits, leaver, w and origin + entry or 0)
      end
      counts = pack('>I7', hits)
      if leaver then
        freed = pack('>I6', leaver)
      end
    end
    if not fits or mode == 1 then
      for i = 1, #KEYS do
        if several then
          w, origin, entry = roots[i][2], roots[i][3], roots[i][4]
        end
        freed = freed .. pack('>I6', w and origin + entry or 0)
      end
      return (not fits and '\0' or skip and '\3' or '\1') .. counts .. freed
    end
    for i = 1, full and #full or 0 do
      if not skip or not skip[full[i]] then
        return redis.error_reply('ABACUS full')
      end
    end
    if due > 0 then
      time = call('TIME')
      local begin = time[1] * 1000000
      if begin + 999999 > due or options % 8 > 3 then
        time = begin + time[2]
        if time > due then
          return '\2' .. pack('>I7', time)
        end
      else
        time = 0
      end
    end
    counts = counts .. freed
    for i = 1, #KEYS do
      local newest
      if several then
        w, origin, entry, total, room, count, here, prior = spread(roots[i], 2, 9)
        now, stale, ttl, n, stretch, flags = unpack('>I6I6I6I7I2I1I2', request, roots[i][1])
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
    return (options > 15 and '\4' .. pack('>I7', times) or skip and '\3' or '\1') .. counts .. pack('>I7', time)
  end
  local function act(KEYS, ARGV)
    local request, values, roots, reply, time = ARGV[1], {}, {}, {}, 0
    local mode, options, due, n, cursor = unpack('>I1I1I7I7', request)
    local adds, begin = n > 0 and mode == 0, cursor
    for i = 1, #KEYS do
      local v, s, ttl, stale, oldest, changes, tells, whole, leaves = call('GET', KEYS[i])
      stretch, ttl, stale, oldest, changes, tells, whole, leaves, cursor = unpack('>I2I6I6I6I2I2I1I2', request, cursor)
      cursor = cursor + 6 * (changes + 2 * tells + leaves)
      if v then
        s = list(v)
        values[i], roots[i] = v, s
      end
      if s and adds and changes > 0 then
        local w, origin = unpack('>I1I6', s)
        local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
        local n, total = n * changes, unpack(f, s, #s - w + 1)
        if options % 2 == 0 and unpack(f, s, 12 + w) == unpack(f, s, 8) and oldest - origin <= unpack('>I4', s, (8 + w)) then
          return redis.error_reply('ABACUS stale')
        elseif total - unpack(f, s, 8) + n > 9007199254740991 and total - unpack(f, s, rank(s, '>I4', size, (8 + w), stale - origin) - w) + n > 9007199254740991 then
          return redis.error_reply('ABACUS full')
        end
      end
    end
    if due > 0 then
      time = call('TIME')
      local begin = time[1] * 1000000
      if begin + 999999 > due or options % 8 > 3 then
        time = begin + time[2]
        if time > due then
          return '\2' .. pack('>I7', time)
        end
      else
        time = 0
      end
    end
    local change = n > 0 and slowly()
    cursor = begin
    for i = 1, #KEYS do
      local r, s, ttl, stale, oldest, changes, tells, whole, leaves, x, to = KEYS[i], roots[i]
      stretch, ttl, stale, oldest, changes, tells, whole, leaves, cursor = unpack('>I2I6I6I6I2I2I1I2', request, cursor)
      local at = adds and changes == 1 and whole == 0 and unpack('>I6', request, cursor)
      if at and s then
        local w, origin = unpack('>I1I6', s)
        local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
        at = at - origin >= unpack('>I4', s, #s - w - 3) - unpack('>I4', s, #s - w - 3) % 8 and at
      end
      for _ = 1, at and 0 or changes do
        x, cursor = unpack('>I6', request, cursor)
        s = change(r, s, x, mode == 2 and -n or n, stale, ttl)
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
  end
  local function forget(KEYS, ARGV)
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
    s = list(s)
    local w, seen, next = byte(s), 0, 0
    local size, origin = 4 + w, unpack('>I6', s, 2)
    for p = rank(s, '>I4', size, (8 + w), from - origin), #s, size do
      local entry = unpack('>I4', s, p)
      local x, kind = entry + origin, entry % 8
      if seen == ENTRIES or #names == LEAVES then
        next = x - kind
        break
      end
      seen = seen + 1
      if kind > 0 then
        names[#names + 1] = r .. ':' .. (x - x % stretch - 123695058124800) / stretch .. (kind == 1 and '.1' or kind == 2 and '.2' or kind == 3 and '.3' or '.4')
      end
    end
    if next == 0 then
      names[#names + 1] = r
    end
    if #names > 0 then
      call('UNLINK', spread(names))
    end
    return next
  end
  return {take = take, act = act, forget = forget}
end
local made
local function register(name, program, flags)
  redis.register_function{
    function_name = 'LIBRARY_' .. name,
    description = 'LOADED',
    flags = flags,
    callback = function(KEYS, ARGV)
      made = made or make()
      return made[program](KEYS, ARGV)
    end,
  }
end
register('take', 'take', {})
register('peek', 'take', {'no-writes'})
register('act', 'act', {})
register('read', 'act', {'no-writes'})
register('forget', 'forget', {})
