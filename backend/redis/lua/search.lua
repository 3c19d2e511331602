-- SEARCH: lo becomes the first of lo to hi for which the number in format g at byte
-- from + lo * size of v is not below bound; hi if there is none before.
while lo < hi do
  local mid = lo + hi
  mid = (mid - mid % 2) / 2
  if unpack(g, v, from + mid * size) < bound then
    lo = mid + 1
  else
    hi = mid
  end
end
