-- Makes an entry a dead letter. ARGV: prefix, shard, lease, entry, reason, Unix seconds, how many
-- dead letters are kept. Returns how many were dropped for room; -1 when the lease is lost.
-- All fields of the entry go with it, whatever they are; an entry of ours has one, and of one that
-- has over a thousand the others are left out, as no command of a script takes them all.
local FIELD_PARTS_MAX = 2000
local shard, lease = ARGV[2], ARGV[3]
if not is_held(shard, lease) then
  return -1
end
local body = redis.call('XRANGE', stream(shard), ARGV[4], ARGV[4])[1]
-- A key of another type ends the script in here, before anything is acknowledged.
redis.call('XLEN', dead)
if redis.call('XACK', stream(shard), group, ARGV[4]) == 0 or not body then
  return 0
end
local parts = math.min(#body[2], FIELD_PARTS_MAX)
redis.call(
  'XADD', dead, '*', 'shard', shard, 'reason', ARGV[5], 'at', ARGV[6], unpack(body[2], 1, parts))
redis.call('XDEL', stream(shard), ARGV[4])
return redis.call('XTRIM', dead, 'MAXLEN', '=', ARGV[7])
