local n, burst, max, now, per, full, ttl = arguments()
local stored, over, since = load(THREE)
local tokens, part, at = burst, 0, now
if stored then
  at = math.max(now, since)
  if at - since < full then
    local whole, rest = muldiv(at - since, max, per)
    whole, rest = stored + whole, over + rest
    if rest >= per then
      whole, rest = whole + 1, rest - per
    end
    if whole < burst then
      tokens, part = whole, rest
    end
  end
end
if tokens < n then
  return answer(false, tokens, part, at)
end
write('SET', KEYS[1], string.format('%.0f %.0f %.0f', tokens - n, part, at), 'PX', ttl)
return answer(true, tokens - n, part, at)
