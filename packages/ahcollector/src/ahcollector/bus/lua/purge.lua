-- Deletes dead letters: all, or those named. ARGV: prefix, letters. Returns how many there were.
if #ARGV > 1 then
  return redis.call('XDEL', dead, unpack(ARGV, 2))
end
local count = redis.call('XLEN', dead)
redis.call('UNLINK', dead)
return count
