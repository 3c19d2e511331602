local n, burst, max, now, per, ttl = arguments()
local stored, over, since = load(THREE)
local level, part, at = 0, 0, now
if stored then
  at = math.max(now, since)
  if at - since < 35184372088832 then -- 2^45, more than anything takes to drain
    local whole, rest = muldiv(at - since, max, per)
    whole, rest = stored - whole, over - rest
    if rest < 0 then
      whole, rest = whole - 1, rest + per
    end
    if whole >= 0 then
      level, part = whole, rest
    end
  end
end
if level + (part > 0 and 1 or 0) > burst - n then
  return answer(false, level, part, at)
end
write('SET', KEYS[1], string.format('%.0f %.0f %.0f', level + n, part, at), 'PX', ttl)
return answer(true, level + n, part, at)
