local n, max, window, oldest, ttl = arguments()
local stored, count = load(TWO)
-- The count of a window older than the oldest is zero; of a newer window it stays.
if stored and stored >= oldest then
  window = stored
else
  count = 0
end
if count > max - n then
  return answer(false, window, count)
end
write('SET', KEYS[1], string.format('%.0f %.0f', window, count + n), 'PX', ttl)
return answer(true, window, count + n)
