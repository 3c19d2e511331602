-- DROP: root s without the entries before stale. An edge, which is an entry
-- without hits, takes their place, and the sum before the first entry has their hits.
local q = rank(s, '>I4', size, FIRST, stale - origin)
local sum, edge = s:sub(q - w, q - 1), unpack('>I4', s, q - w - 4)
s = s:sub(1, 7) .. sum .. pack('>I4', edge - edge % 8) .. sum .. s:sub(q)
