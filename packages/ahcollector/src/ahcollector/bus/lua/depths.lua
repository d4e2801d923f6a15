-- Returns for each shard how many entries are in it that nobody read. ARGV: prefix.
local depths = {}
for shard = 0, 63 do
  -- Where the key is no stream, whoever publishes there is told so.
  local length = redis.pcall('XLEN', stream(shard))
  if type(length) ~= 'number' then
    length = 0
  end
  if length > 0 then
    -- Without a group nobody ever read.
    local pending = redis.pcall('XPENDING', stream(shard), group)
    length = length - (pending[1] or 0)
  end
  depths[shard + 1] = length
end
return depths
