-- Lists pending entries in order. ARGV: prefix, shard, lease, entry behind which to begin, how many.
-- Returns whether the lease is held, and the entries.
local shard, lease = ARGV[2], ARGV[3]
if not is_held(shard, lease) then
  return {0, {}}
end
local found = {}
for _, row in ipairs(redis.call('XPENDING', stream(shard), group, '(' .. ARGV[4], '+', ARGV[5])) do
  table.insert(found, row[1])
end
return {1, found}
