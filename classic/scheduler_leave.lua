-- Gives back the last slot: if the next free slot is still the slot that this
-- caller has set, the next free slot is the caller's own again.
local at, part, t, p, ttl = arguments()
local free, rest = load(TWO)
local last = free == t and rest == p
if last then
  write('SET', KEYS[1], string.format('%.0f %.0f', at, part), 'PX', ttl)
end
return answer(last)
