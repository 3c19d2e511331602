-- Gives a place back that is the last one: the next free departure, if it is
-- still the one that this place has set, is the place's own again.
local at, part, t, p, ttl = arguments()
local free, rest = load(TWO)
local last = free == t and rest == p
if last then
  write('SET', KEYS[1], string.format('%.0f %.0f', at, part), 'PX', ttl)
end
return answer(last)
