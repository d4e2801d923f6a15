-- Finds pending entries that are idle. ARGV: prefix, shard, lease, ms idle, cursor, how many.
-- Returns whether the lease is held, the cursor to go on from ('0-0' at the end), and the entries.
-- A page may be empty and not the last. The reply has two elements before Redis 7, which lists
-- deleted entries among the others, and three since then.
local shard, lease = ARGV[2], ARGV[3]
if not is_held(shard, lease) then
  return {0, '0-0', {}}
end
local reply = redis.call(
  'XAUTOCLAIM', stream(shard), group, consumer, ARGV[4], ARGV[5], 'COUNT', ARGV[6], 'JUSTID')
local found = {}
for _, entry in pairs(reply[2]) do
  if entry then
    table.insert(found, entry)
  end
end
return {1, reply[1], found}
