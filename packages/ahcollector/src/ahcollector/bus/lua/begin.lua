-- Counts a try before it is made. ARGV: prefix, shard, lease, entry, tries.
-- Returns 1; 0 when the entry is not pending any more; -1 when the lease is lost.
local shard, lease = ARGV[2], ARGV[3]
if not is_held(shard, lease) then
  return -1
end
local claimed = redis.call(
  'XCLAIM', stream(shard), group, consumer, 0, ARGV[4], 'RETRYCOUNT', ARGV[5], 'JUSTID')
return #claimed
