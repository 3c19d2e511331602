-- DUE: reads the clock, and ends the script if the clock is past due. due is the
-- deadline in microseconds of this server's clock; 0 is none. time becomes the time if it
-- is to be told, and 0 otherwise: to make a number of a string costs a sixth of
-- a microsecond, and the seconds are mostly enough to tell that due has not come.
if due > 0 then
  time = call('TIME')
  local begin = time[1] * 1000000
  if begin + 999999 > due or options % 8 > 3 then
    time = begin + time[2]
    if time > due then
      return LATE .. pack('>I7', time)
    end
  else
    time = 0
  end
end
