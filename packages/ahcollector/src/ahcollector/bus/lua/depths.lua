-- Returns for each shard how many entries are in it that nobody read. ARGV: prefix.
local depths = {}
for shard = 0, 63 do
  local length = redis.call('XLEN', stream(shard))
  if length > 0 then
    -- Without a group nobody ever read.
    local pending = redis.pcall('XPENDING', stream(shard), group)
    length = length - (pending[1] or 0)
  end
  depths[shard + 1] = length
end
return depths
