-- Forgets acknowledged entries, and tries of entries that a handler took.
-- ARGV: prefix, then for each shard: shard, lease, how many acknowledged, how many taken, and those.
-- Returns for each shard 1, or -1 when its lease is lost: then nothing was done to it.
local verdicts = {}
local at = 2
while at <= #ARGV do
  local shard, lease = ARGV[at], ARGV[at + 1]
  local acked, taken = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local begin = at + 4
  at = begin + acked + taken
  if is_held(shard, lease) then
    if acked > 0 then
      redis.call('XACK', stream(shard), group, unpack(ARGV, begin, begin + acked - 1))
      redis.call('XDEL', stream(shard), unpack(ARGV, begin, begin + acked - 1))
    end
    for place = begin + acked, at - 1 do
      redis.call('XCLAIM', stream(shard), group, consumer, 0, ARGV[place], 'RETRYCOUNT', 1, 'JUSTID')
    end
    table.insert(verdicts, 1)
  else
    table.insert(verdicts, -1)
  end
end
return verdicts
