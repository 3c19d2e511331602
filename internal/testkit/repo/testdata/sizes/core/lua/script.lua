-- A comment
local n = 1 -- code

  -- another
return n
