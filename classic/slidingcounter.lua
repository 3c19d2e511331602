local n, max, window, elapsed, per, ttl = arguments()
local stored, cur, prev = load(THREE)
if not stored or stored < window - 1 then
  cur, prev = 0, 0
elseif stored < window then
  cur, prev = 0, cur
elseif stored > window then
  window, elapsed = stored, 0
end
if cur + muldivup(prev, per - elapsed, per) > max - n then
  return answer(false, window, cur, prev)
end
write('SET', KEYS[1], string.format('%.0f %.0f %.0f', window, cur + n, prev), 'PX', ttl)
return answer(true, window, cur + n, prev)
