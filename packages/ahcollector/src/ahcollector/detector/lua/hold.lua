-- Takes or renews the turn. KEYS: the lease. ARGV: the holder, ms of a lease.
-- Returns 2 when the holder took it, 1 when it had it already, 0 when another has it.
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return held and 1 or 2
