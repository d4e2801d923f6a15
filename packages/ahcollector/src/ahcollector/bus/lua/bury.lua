-- Makes an entry a dead letter. ARGV: prefix, shard, lease, entry, reason, Unix seconds, how many
-- dead letters are kept. Returns how many were dropped for room; -1 when the lease is lost.
-- All fields of the entry go with it, whatever they are.
local shard, lease = ARGV[2], ARGV[3]
if not is_held(shard, lease) then
  return -1
end
local body = redis.call('XRANGE', stream(shard), ARGV[4], ARGV[4])[1]
if redis.call('XACK', stream(shard), group, ARGV[4]) == 0 or not body then
  return 0
end
redis.call(
  'XADD', dead, '*', 'shard', shard, 'reason', ARGV[5], 'at', ARGV[6], unpack(body[2]))
redis.call('XDEL', stream(shard), ARGV[4])
return redis.call('XTRIM', dead, 'MAXLEN', '=', ARGV[7])
