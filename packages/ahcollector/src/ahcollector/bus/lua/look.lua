-- Tells who is there and renews what the caller holds.
-- ARGV: prefix, worker, the shards it wants (text), ms of a lease, then shard and lease of each.
-- Returns the shards whose lease is lost, then workers and what each wants, then the 64 leases.
local worker, wants, lease_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])
local beacons, wanted = prefix .. 'bus:workers', prefix .. 'bus:wants'
local now = now_ms()

redis.call('ZADD', beacons, now + lease_ms, worker)
redis.call('HSET', wanted, worker, wants)
local silent = redis.call('ZRANGEBYSCORE', beacons, '-inf', now)
for _, one in ipairs(silent) do
  redis.call('HDEL', wanted, one)
  redis.call('ZREM', beacons, one)
end

local lost = {}
for at = 5, #ARGV, 2 do
  if is_held(ARGV[at], ARGV[at + 1]) then
    redis.call('PEXPIRE', own(ARGV[at]), lease_ms)
  else
    table.insert(lost, tonumber(ARGV[at]))
  end
end

local leases = {}
for shard = 0, 63 do
  leases[shard + 1] = redis.call('GET', own(shard))
end
return {lost, redis.call('HGETALL', wanted), leases}
