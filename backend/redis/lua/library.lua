#!lua name=LIBRARY
-- The scripts as functions of a library. internal/redisscript replaces LIBRARY by the
-- name of the library, and LOADED by the day of the load.

local function make()
  PARTS
  local function changes()
    CHANGES
    return change, bundle, rewrite, insert
  end
  local change, bundle, rewrite, insert = changes()
  local function slowly()
    return change, bundle, rewrite, insert
  end
  ADD
  local function take(KEYS, ARGV)
    TAKE
  end
  local function act(KEYS, ARGV)
    ACT
  end
  local function forget(KEYS, ARGV)
    FORGET
  end
  return {take = take, act = act, forget = forget}
end

local made

local function register(name, program, flags)
  redis.register_function{
    function_name = 'LIBRARY_' .. name,
    description = 'LOADED',
    flags = flags,
    callback = function(KEYS, ARGV)
      made = made or make()
      return made[program](KEYS, ARGV)
    end,
  }
end

register('take', 'take', {})
register('peek', 'take', {'no-writes'})
register('act', 'act', {})
register('read', 'act', {'no-writes'})
register('forget', 'forget', {})
