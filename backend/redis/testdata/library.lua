#!lua name=LIBRARY
local function make()
  local spread = unpack
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
  local function holds(r, s, w, f, origin, bound, p, need)
    local v, g, size, from, lo, hi = s, f, 4 + w, p + 4, 0, (#s - p + 1) / (4 + w) - 1
    if need <= hi then
      hi = need - 1
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
    local entry = unpack('>I4', s, p)
    local x, kind = entry + origin, entry % 8
    if kind == 0 then
      return x
    end
    local wide, skip = (kind < 3 and 2 or kind == 3 and 4 or 7), kind == 1 and 2 or 0
    v, bound = call('GET', r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10) or '', bound - unpack(f, s, p - w)
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
  local function changes()
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
  local change, bundle, rewrite = changes()
  local function slowly()
    return change, bundle, rewrite
  end
  local function take(KEYS, ARGV)
    local request, counts, freed, room, roots, time = ARGV[1], '', '', true, #KEYS > 1 and {}, 0
    local mode, any, due, cursor = unpack('>I1I1I7', request)
    local now, stale, ttl, n, flags, windows, s, w, f, size, origin, total
    local owner, skip, full
    if mode >= 2 then
      for i = 1, #KEYS do
        now, stale, ttl, n, stretch, flags, windows, cursor = unpack('>I6I6I6I7I2I1I2', request, cursor)
        cursor = cursor + 13 * windows
        s = n > 0 and (mode == 2 or flags < 2) and call('GET', KEYS[i])
        if s then
          slowly()(KEYS[i], s, now, -n, stale, ttl)
        end
      end
      return '\1'
    end
    for i = 1, #KEYS do
      local r, begin = KEYS[i], cursor
      now, stale, ttl, n, stretch, flags, windows, cursor = unpack('>I6I6I6I7I2I1I2', request, cursor)
      if flags % 2 == 0 then
        owner = i
      end
      s = call('GET', r)
      if s then
        w = string.byte(s)
        if (w ~= 2 and w ~= 4 and w ~= 7 or #s < 11 + 2 * w or (#s - 7 - w) % (4 + w) ~= 0) then
          return redis.error_reply('ABACUS foreign')
        end
        f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
        origin, total = unpack('>I6', s, 2), unpack(f, s, #s - w + 1)
        if total - unpack(f, s, 8) + n > 9007199254740991 and total - unpack(f, s, rank(s, '>I4', size, (8 + w), stale - origin) - w) + n > 9007199254740991 then
          full = full or {}
          full[#full + 1] = flags > 1 and owner or 0
        end
        if windows == 0 and any == 0 and unpack(f, s, 12 + w) == unpack(f, s, 8) and now - origin <= unpack('>I4', s, (8 + w)) then
          return redis.error_reply('ABACUS stale')
        end
      end
      for _ = 1, windows do
        local count, x, max, p = 0
        x, max, cursor = unpack('>I6I7', request, cursor)
        if s then
          local at = x - origin
          p = rank(s, '>I4', size, (8 + w), at)
          if p == (8 + w) and unpack(f, s, 12 + w) == unpack(f, s, 8) then
            if any == 0 then
              return redis.error_reply('ABACUS stale')
            end
            p = p + size
          end
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
    if not room or mode == 1 then
      for i = 1, #KEYS do
        if roots then
          s, w, origin = roots[i][2], roots[i][3], roots[i][6]
        end
        freed = freed .. pack('>I6', (s and unpack('>I4', s, #s - w - 3) + origin or 0))
      end
      return (not room and '\0' or skip and '\3' or '\1') .. counts .. freed
    end
    for i = 1, full and #full or 0 do
      if not skip or not skip[full[i]] then
        return redis.error_reply('ABACUS full')
      end
    end
    if due > 0 then
      time = call('TIME')
      time = time[1] * 1000000 + time[2]
      if time > due then
        return '\2' .. pack('>I7', time)
      end
    end
    counts = counts .. freed
    for i = 1, #KEYS do
      local r, slow = KEYS[i]
      if roots then
        local root = roots[i]
        s, w, f, size, origin, total = root[2], root[3], root[4], root[5], root[6], root[7]
        now, stale, ttl, n, stretch, flags = unpack('>I6I6I6I7I2I1I2', request, root[1])
        if flags % 2 == 0 then
          owner = i
        end
      end
      local x, newest = now, now
      if n == 0 or skip and skip[owner] then
        newest = (s and unpack('>I4', s, #s - w - 3) + origin or 0)
      elseif not s and n < 65536 then
        call('SET', r, pack('>I1I6I2I4I2', 2, x - x % stretch - 3456000000, 0, x % stretch + 3456000000, n), 'PX', ttl)
      elseif not s or total + n >= (w == 2 and 65536 or w == 4 and 4294967296 or 9007199254740991) then
        slow = true
      else
        local at, entry = x - origin, unpack('>I4', s, #s - w - 3)
        local kind = entry % 8
        local last, start = entry - kind, at - at % stretch
        if at < last or (x < origin or x - origin >= 4294967296 - stretch) then
          slow = true
        elseif last < start then
          if kind > 1 or #s > (#s > 4096 and 2 or 12) * size + 7 + w and unpack('>I4', s, #s - (#s > 4096 and 2 or 12) * size + 1) >= last - last % stretch then
            local _, bundle, rewrite = slowly()
            if kind == 0 then
              s = bundle(r, s, w, f, origin, last + origin, ttl)
            else
              rewrite(r, last + origin, kind, 0, 0, ttl)
            end
          end
          local eighth = (#s - 7 - w) / size
          eighth = (eighth - eighth % 8) / 8
          if unpack('>I4', s, (8 + w) + eighth * size) < stale - origin then
            local q = rank(s, '>I4', size, (8 + w), stale - origin)
            local sum, edge = s:sub(q - w, q - 1), unpack('>I4', s, q - w - 4)
            s = s:sub(1, 7) .. sum .. pack('>I4', edge - edge % 8) .. sum .. s:sub(q)
          end
          call('SET', r, s .. pack('>I4' .. f, at, total + n), 'PX', ttl)
        elseif kind == 0 then
          if at == last then
            call('SETRANGE', r, #s - w, pack(f, total + n))
          elseif #s > 128 * size and unpack('>I4', s, #s - 12 * size + 1) >= start then
            local _, bundle = slowly()
            call('SET', r, bundle(r, s .. pack('>I4' .. f, at, total + n), w, f, origin, x, ttl), 'PX', ttl)
          elseif #s < 1024 then
            call('SET', r, s .. pack('>I4' .. f, at, total + n), 'KEEPTTL')
          else
            call('APPEND', r, pack('>I4' .. f, at, total + n))
          end
        else
          local share, wide, name = total - unpack(f, s, #s - 2 * w - 3), (kind < 3 and 2 or kind == 3 and 4 or 7), at > last and r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10
          local slot, was = at % stretch / 8, last % stretch / 8
          if share + n >= 256 ^ wide then
            slow = true
          elseif name and kind == 1 then
            local len = call('APPEND', name, pack('>I2I2', was, share))
            if len == 4 then
              call('PEXPIRE', name, ttl)
            elseif len >= 1200 then
              local _, _, rewrite = slowly()
              kind = rewrite(r, x, kind, slot, share, ttl)
            end
          elseif name then
            local sums = string.rep(pack('>I' .. wide, share), slot - was)
            if was == 0 or call('APPEND', name, sums) ~= slot * wide then
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
        local w, origin = unpack('>I1I6', s)
        local f, size = (w == 2 and '>I2' or w == 4 and '>I4' or '>I7'), 4 + w
        newest = (s and unpack('>I4', s, #s - w - 3) + origin or 0)
      end
      counts = counts .. pack('>I6', newest)
    end
    return (skip and '\3' or '\1') .. counts .. pack('>I7', time)
  end
  local function act(KEYS, ARGV)
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
    local w = string.byte(s)
    if (w ~= 2 and w ~= 4 and w ~= 7 or #s < 11 + 2 * w or (#s - 7 - w) % (4 + w) ~= 0) then
      return redis.error_reply('ABACUS foreign')
    end
    local size, origin, seen, next = 4 + w, unpack('>I6', s, 2), 0, 0
    for p = rank(s, '>I4', size, (8 + w), from - origin), #s, size do
      local entry = unpack('>I4', s, p)
      local x, kind = entry + origin, entry % 8
      if seen == ENTRIES or #names == LEAVES then
        next = x - kind
        break
      end
      seen = seen + 1
      if kind > 0 then
        names[#names + 1] = r .. ':' .. (x - x % stretch - 123695058124800) / stretch + kind / 10
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
