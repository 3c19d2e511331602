local n, max, now, from, stale, ttl = arguments()
local count = read('ZCOUNT', KEYS[1], ARGV[4], '+inf')
local function score(rank)
  return tonumber(read('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES')[2])
end
if count > max - n then
  local leaves, newest = 0, count > 0 and score(-1)
  if n <= max then
    leaves = score(read('ZCARD', KEYS[1]) - max + n - 1)
  end
  return answer(false, count, leaves, newest)
end
write('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[5])
-- All members of an instant leave together, so their number is a suffix that no
-- member has yet.
local same, members = read('ZCOUNT', KEYS[1], ARGV[3], ARGV[3]), {}
for i = 1, n do
  members[#members + 1] = ARGV[3]
  members[#members + 1] = string.format('%s:%d', ARGV[3], same + i)
  if #members == 1000 or i == n then
    write('ZADD', KEYS[1], unpack(members))
    members = {}
  end
end
write('PEXPIRE', KEYS[1], ttl)
return answer(true, count + n, 0, score(-1))
