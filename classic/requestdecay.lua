local n, max, now, per, ttl = arguments()
local stored, since = load(TWO)
local count, at = 0, now
if stored then
  at = math.max(now, since)
  if at - since < 35184372088832 then -- 2^45, more than anything takes to drain
    count = math.max(0, stored - (muldiv(at - since, max, per)))
  end
end
local allowed = count <= max - n
if allowed then
  count = count + n
end
if stored or allowed then
  write('SET', KEYS[1], string.format('%.0f %.0f', count, at), 'PX', ttl)
end
return answer(allowed, count, at)
