-- Gives a shard up. ARGV: prefix, shard, lease, then entry and its tries, for entries whose last
-- try is given back. Returns whether the lease was still held.
local shard, lease = ARGV[2], ARGV[3]
if not is_held(shard, lease) then
  return 0
end
for at = 4, #ARGV, 2 do
  redis.call('XCLAIM', stream(shard), group, consumer, 0, ARGV[at], 'RETRYCOUNT', ARGV[at + 1], 'JUSTID')
end
redis.call('DEL', own(shard))
return 1
