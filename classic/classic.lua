-- The beginning of every script of this package. A script has a single key, the
-- name of a state, and whole numbers as arguments. It answers whether the call is
-- allowed, the numbers of reads and writes, and four facts.

local reads, writes = 0, 0

local function read(...)
  reads = reads + 1
  return redis.call(...)
end

local function write(...)
  writes = writes + 1
  return redis.call(...)
end

local function answer(allowed, a, b, c, d)
  return {allowed and 1 or 0, reads, writes, a or 0, b or 0, c or 0, d or 0}
end

local function arguments()
  local t = {}
  for i, v in ipairs(ARGV) do
    t[i] = tonumber(v)
  end
  return unpack(t)
end

-- A state is whole numbers in decimal, as many as the pattern has. Any other value
-- is an error, not a zero. Write with format: '..' has 14 digits only.
local TWO, THREE = '^(-?%d+) (-?%d+)$', '^(-?%d+) (-?%d+) (-?%d+)$'

local function load(pattern)
  local v = read('GET', KEYS[1])
  if v then
    local a, b, c = string.match(v, pattern)
    if not a then
      error('ABACUS foreign', 0)
    end
    return tonumber(a), tonumber(b), tonumber(c)
  end
end

-- a*b/q in whole numbers, and the rest. a, b and q are below 2^45. A product
-- beyond 2^53 is made seven bits of a at a time, each step of it exact.
local function muldiv(a, b, q)
  if a * b <= 9007199254740992 then
    local whole = math.floor(a * b / q)
    return whole, a * b - whole * q
  end
  local whole, rest, digit = 0, 0, 4398046511104 -- 128^6
  while digit >= 1 do
    local d = math.floor(a / digit)
    a = a - d * digit
    rest = rest * 128 + d * b
    local w = math.floor(rest / q)
    whole, rest, digit = whole * 128 + w, rest - w * q, digit / 128
  end
  return whole, rest
end

local function muldivup(a, b, q)
  local whole, rest = muldiv(a, b, q)
  return rest > 0 and whole + 1 or whole
end
