-- Takes shards that nobody holds. ARGV: prefix, worker, ms of a lease, shards.
-- Returns shard, lease and how many entries are held by nobody, for each that was free.
-- A fence rises although Redis lost the last one: it is the time, or one more than the last. What is
-- no number that Lua holds exactly is no fence.
local worker, lease_ms = ARGV[2], tonumber(ARGV[3])
local fences = prefix .. 'bus:fence'
local taken = {}
make_way()
for at = 4, #ARGV do
  local shard = ARGV[at]
  if redis.call('EXISTS', own(shard)) == 0 then
    -- The group is usually there, and then this is an error that says so.
    redis.pcall('XGROUP', 'CREATE', stream(shard), group, '0', 'MKSTREAM')
    local state = pending_of(shard)
    -- What is no stream cannot be read; `look` tells of it.
    if state then
      local kept = redis.pcall('HGET', fences, shard)
      local is_fence = type(kept) == 'string' and #kept <= 15 and string.match(kept, '^%d+$')
      local last = is_fence and tonumber(kept) or 0
      local fence = string.format('%.0f', math.max(now_ms(), last + 1))
      local lease = fence .. ' ' .. worker
      redis.pcall('HSET', fences, shard, fence)
      redis.call('SET', own(shard), lease, 'PX', lease_ms)
      table.insert(taken, tonumber(shard))
      table.insert(taken, lease)
      table.insert(taken, state[1])
    end
  end
end
return taken
