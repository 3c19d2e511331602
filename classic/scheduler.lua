local now, cost, costpart, ahead, aheadpart, max, ttl = arguments()
local at, part = load(TWO)
if not at or at < now then
  at, part = now, 0
elseif part >= max then
  part = max - 1
end
local last = now + ahead
if at > last or at == last and part > aheadpart then
  return answer(false, at, part)
end
local t, p = at + cost, part + costpart
if p >= max then
  t, p = t + 1, p - max
end
write('SET', KEYS[1], string.format('%.0f %.0f', t, p), 'PX', ttl)
return answer(true, at, part, t, p)
