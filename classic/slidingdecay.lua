local n, max, now, per, ttl = arguments()
local stored, since = load(TWO)
local level, at = 0, now
if stored then
  at = math.max(now, since)
  if at - since < per then
    level = muldivup(stored, per - (at - since), per)
  end
end
if level > (max - n) * 1024 then
  return answer(false, stored, since or now)
end
level = level + n * 1024
write('SET', KEYS[1], string.format('%.0f %.0f', level, at), 'PX', ttl)
return answer(true, level, at)
