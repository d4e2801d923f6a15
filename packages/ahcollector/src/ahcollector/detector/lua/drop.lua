-- Gives the turn up. KEYS: the lease. ARGV: the holder.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1
