-- DUE: reads the clock, and ends the script if it is too late to count; due is in
-- microseconds of this server's clock, and 0 is no bound.
if due > 0 then
  time = call('TIME')
  time = time[1] * 1000000 + time[2]
  if time > due then
    return LATE .. pack('>I7', time)
  end
end
