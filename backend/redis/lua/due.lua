-- DUE: reads the clock, and ends the script if the clock is past due. due is the
-- deadline in microseconds of this server's clock; 0 is none.
if due > 0 then
  time = call('TIME')
  time = time[1] * 1000000 + time[2]
  if time > due then
    return LATE .. pack('>I7', time)
  end
end
