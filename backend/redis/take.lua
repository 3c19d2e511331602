-- Takes hits of several keys if every window of those that are not soft has room.
-- KEYS: roots, those of one key beside each other. ARGV[1]: seven bytes that are
-- not used here, what to do (0 take, 1 look only, 2 take back what the same
-- program took, 3 the same, but of no soft key; 4 more: go by what is there,
-- whatever was dropped), until when in microseconds of this server's clock, and for
-- each root the position of now, that of what is stale, its time to live in ms,
-- its hits, positions of a leaf, the number of its windows (32768 more for a soft
-- key, 16384 more for a root of the same key as the one before), and its windows:
-- the position of the edge, and Max.
-- Returns a byte (1: there is room, 3: there is, but not in all soft keys), the
-- count of each window, of each window without room the position that must leave
-- it, the newest position of each root, 0 for none, and if hits were taken the
-- time. If it is too late to take them: the byte 2 and the time.

local program = ARGV[1]
local mode, due, at = unpack('>I1I7', program, 8)
local any = mode > 3
if any then
  mode = mode - 4
end
if mode > 1 then
  for i = 1, #KEYS do
    local own, stale, ttl, n, windows
    own, stale, ttl, n, LEAF, windows, at = unpack('>I6I6I6I7I2I2', program, at)
    at = at + 13 * (windows % 16384)
    local s = n > 0 and (mode == 2 or windows < 32768) and call('GET', KEYS[i])
    if s then
      slowly()(KEYS[i], s, own, -n, stale, ttl)
    end
  end
  return '\1'
end
local n, skip, owner -- skip has the first roots of soft keys without room
local counts, leaving, room, roots = '', '', true, #KEYS > 1 and {}
local s, w, f, size, origin, total, full
for i = 1, #KEYS do
  local r, place, windows, edge, max = KEYS[i], at
  n, LEAF, windows, at = unpack('>I7I2I2', program, at + 18)
  local soft = windows >= 32768
  if windows % 32768 < 16384 then
    owner = i
  end
  windows = windows % 16384
  s = call('GET', r)
  if s then
    w = string.byte(s)
    f = w == 2 and '>I2' or w == 4 and '>I4' or w == 7 and '>I7'
    if not f or #s < 11 + 2 * w or (#s - 7 - w) % (4 + w) ~= 0 then
      return redis.error_reply('ABACUS foreign')
    end
    size, origin, total = 4 + w, unpack('>I6', s, 2), unpack(f, s, #s - w + 1)
    if total - unpack(f, s, 8) + n > MOST then
      local stale = unpack('>I6', program, place + 6) - origin -- counts no more
      if total - unpack(f, s, rank(s, '>I4', size, 8 + w, stale) - w) + n > MOST then
        full = full or {}
        full[#full + 1] = soft and owner or 0
      end
    end
  end
  if windows == 0 and s and unpack(f, s, 12 + w) == unpack(f, s, 8) and unpack('>I6', program, place) - origin <= unpack('>I4', s, 8 + w) and not any then
    return redis.error_reply('ABACUS stale')
  end
  for _ = 1, windows do
    edge, max, at = unpack('>I6I7', program, at)
    local count, p = 0
    if s then
      local x = edge - origin
      p = rank(s, '>I4', size, 8 + w, x)
      if p == 8 + w and unpack(f, s, p + 4) == unpack(f, s, 8) then
        if not any then
          return redis.error_reply('ABACUS stale')
        end
        p = p + size
      end
      local sum, entry = unpack(f, s, p - w), p < #s and unpack('>I4', s, p) or 0
      local kind = entry % 8
      if kind > 0 and entry - entry % LEAF < x then
        local name, slot, under = r .. ':' .. (edge - edge % LEAF - BIAS) / LEAF + kind / 10, x % LEAF / 8, 0
        if kind == 1 then
          local v = call('GET', name)
          local q = v and rank(v, '>I2', 4, 1, slot) or 1
          under = q > 1 and unpack('>I2', v, q - 2) or 0
        else
          local wide = kind == 2 and 2 or kind == 3 and 4 or 7
          local v = call('GETRANGE', name, (slot - 1) * wide, slot * wide - 1)
          under = v ~= '' and unpack('>I' .. wide, v) or 0
        end
        if under > unpack(f, s, p + 4) - sum then
          return redis.error_reply('ABACUS foreign')
        end
        sum = sum + under
      end
      count = total - sum
    end
    counts = counts .. pack('>I7', count)
    if count > max - n then
      if soft then
        skip = skip or {}
        skip[owner] = true
      else
        room = false
      end
      leaving = leaving .. pack('>I6', count > 0 and holds(r, s, w, f, origin, math.min(total - max + n, total), p, math.min(count - max + n, count)) or 0)
    end
  end
  if roots then
    roots[i] = {place, s, w, f, size, origin, total}
  end
end

if not room or mode == 1 then
  local newest = ''
  for i = 1, #KEYS do
    if roots then
      s, w, origin = roots[i][2], roots[i][3], roots[i][6]
    end
    local last = s and unpack('>I4', s, #s - w - 3)
    newest = newest .. pack('>I6', last and last - last % 8 + origin or 0)
  end
  return (not room and '\0' or skip and '\3' or '\1') .. counts .. leaving .. newest
end

for _, of in ipairs(full or {}) do
  if not skip or not skip[of] then
    return redis.error_reply('ABACUS full')
  end
end
local time = 0
if due > 0 then
  time = call('TIME')
  time = time[1] * 1000000 + time[2]
  if time > due then
    return '\2' .. pack('>I7', time)
  end
end
at, counts = 16, counts .. leaving
for i = 1, #KEYS do
  local r, windows = KEYS[i]
  if roots then
    at, s, w, f, size, origin, total = roots[i][1], roots[i][2], roots[i][3], roots[i][4], roots[i][5], roots[i][6], roots[i][7]
  end
  local own, stale, ttl
  own, stale, ttl, n, LEAF, windows = unpack('>I6I6I6I7I2I2', program, at)
  if windows % 32768 < 16384 then
    owner = i
  end
  local done = n == 0 or skip and skip[owner]
  if done then
    own = s and unpack('>I4', s, #s - w - 3)
    own = own and own - own % 8 + origin or 0
  elseif not s and n < 65536 then
    call('SET', r, pack('>I1I6I2I4I2', 2, own - own % LEAF - BACK, 0, own % LEAF + BACK, n), 'PX', ttl)
    done = true
  -- What costs little: a hit at the end of what there is, where its sum fits.
  elseif s and total + n < (w == 2 and 65536 or w == 4 and 4294967296 or MOST) then
    local x, entry = own - origin, unpack('>I4', s, #s - w - 3)
    local kind = entry % 8
    local last, start = entry - kind, x - x % LEAF
    if x < 0 or x >= 4294967296 - LEAF or x < last then
      -- It is not at the end.
    elseif last < start then
      -- A new stretch of time. The last one is put in order, what is stale is
      -- dropped if it is an eighth, and the time to live begins anew.
      local few = #s > 4096 and 2 or FEW
      if kind > 1 or #s > few * size + 7 + w and unpack('>I4', s, #s - few * size + 1) >= last - last % LEAF then
        local _, bundle, rewrite = slowly()
        local over = last + origin
        if kind == 0 then
          s = bundle(r, s, w, f, origin, over, ttl)
        else
          rewrite(r, over, kind, 0, 0, ttl)
        end
      end
      local eighth = (#s - 7 - w) / size
      eighth = (eighth - eighth % 8) / 8
      if unpack('>I4', s, 8 + w + eighth * size) < stale - origin then
        local q = rank(s, '>I4', size, 8 + w, stale - origin)
        local sum, edge = s:sub(q - w, q - 1), unpack('>I4', s, q - w - 4)
        s = s:sub(1, 7) .. sum .. pack('>I4', edge - edge % 8) .. sum .. s:sub(q)
      end
      call('SET', r, s .. pack('>I4' .. f, x, total + n), 'PX', ttl)
      done = true
    elseif kind == 0 then
      if last == x then
        call('SETRANGE', r, #s - w, pack(f, total + n))
      elseif #s > MANY * size and unpack('>I4', s, #s - FEW * size + 1) >= start then
        local _, bundle = slowly()
        call('SET', r, bundle(r, s .. pack('>I4' .. f, x, total + n), w, f, origin, own, ttl), 'PX', ttl)
      else
        -- An append doubles the room of the value, for as long as the stretch. To
        -- write a small one anew is a little slower, and half as large.
        if #s < 1024 then
          call('SET', r, s .. pack('>I4' .. f, x, total + n), 'KEEPTTL')
        else
          call('APPEND', r, pack('>I4' .. f, x, total + n))
        end
      end
      done = true
    else
      -- The leaf lacks the last bucket: it is there when it is over.
      local share, wide = total - unpack(f, s, #s - 2 * w - 3), kind < 3 and 2 or kind == 3 and 4 or 7
      if share + n < 256 ^ wide then
        if x > last then
          local name, slot, was = r .. ':' .. (own - own % LEAF - BIAS) / LEAF + kind / 10, x % LEAF / 8, last % LEAF / 8
          if kind == 1 then
            local len = call('APPEND', name, pack('>I2I2', was, share))
            if len == 4 then
              call('PEXPIRE', name, ttl)
            elseif len >= SPARSE then
              local _, _, rewrite = slowly()
              kind = rewrite(r, own, kind, slot, share, ttl)
            end
          else
            local sums = string.rep(pack('>I' .. wide, share), slot - was)
            if was == 0 or call('APPEND', name, sums) ~= slot * wide then
              -- It is empty, or gone, or was: what it held counts from its last
              -- bucket on. An append would make it anew without a time to live.
              call('SET', name, string.rep('\0', was * wide) .. sums, 'PX', ttl)
            end
          end
        end
        call('SETRANGE', r, #s - w - 4, pack('>I4' .. f, x + kind, total + n))
        done = true
      end
    end
  end
  if not done then
    s = slowly()(r, s or nil, own, n, stale, ttl)
    w, origin = unpack('>I1I6', s)
    own = unpack('>I4', s, #s - w - 3)
    own = own - own % 8 + origin
  end
  counts = counts .. pack('>I6', own)
end
return (skip and '\3' or '\1') .. counts .. pack('>I7', time)
