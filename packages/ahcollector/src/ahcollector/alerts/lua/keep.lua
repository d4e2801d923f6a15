-- KEYS: the list, and of when it is. ARGV: the list, its time. An older list does not replace a newer one.
local before = tonumber(redis.call('GET', KEYS[2]) or '')
if before and before > tonumber(ARGV[2]) and redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1
