local n, max, ttl = arguments()
local v = read('GET', KEYS[1])
local count = v and tonumber(v) or 0
if count > max - n then
  return answer(false, count)
end
count = write('INCRBY', KEYS[1], ARGV[1])
if not v then
  write('PEXPIRE', KEYS[1], ttl)
end
return answer(true, count)
