-- Takes shards that nobody holds. ARGV: prefix, worker, ms of a lease, shards.
-- Returns shard, lease and how many entries are held by nobody, for each that was free.
-- A fence rises although Redis lost the last one: it is the time, or one more than the last.
local worker, lease_ms = ARGV[2], tonumber(ARGV[3])
local fences = prefix .. 'bus:fence'
local taken = {}
for at = 4, #ARGV do
  local shard = ARGV[at]
  if redis.call('EXISTS', own(shard)) == 0 then
    local last = tonumber(redis.call('HGET', fences, shard) or 0)
    local fence = string.format('%.0f', math.max(now_ms(), last + 1))
    local lease = fence .. ' ' .. worker
    redis.call('HSET', fences, shard, fence)
    redis.call('SET', own(shard), lease, 'PX', lease_ms)
    -- The group is usually there, and then this is an error that says so.
    redis.pcall('XGROUP', 'CREATE', stream(shard), group, '0', 'MKSTREAM')
    local pending = redis.call('XPENDING', stream(shard), group)[1]
    table.insert(taken, tonumber(shard))
    table.insert(taken, lease)
    table.insert(taken, pending)
  end
end
return taken
