-- SEARCH: lo becomes the first number from lo to hi with a number in format g not below
-- bound at byte from + lo * size of v; hi if there is none before.
while lo < hi do
  local mid = lo + hi
  mid = (mid - mid % 2) / 2
  if unpack(g, v, from + mid * size) < bound then
    lo = mid + 1
  else
    hi = mid
  end
end
