-- Counts a try of several entries before they are handed over. ARGV: prefix, shard, lease, tries,
-- entries. Returns those that are pending; none when the lease is lost.
local shard, lease = ARGV[2], ARGV[3]
if not is_held(shard, lease) then
  return {}
end
local command = {'XCLAIM', stream(shard), group, consumer, 0}
for at = 5, #ARGV do
  table.insert(command, ARGV[at])
end
for _, word in ipairs({'RETRYCOUNT', ARGV[4], 'JUSTID'}) do
  table.insert(command, word)
end
return redis.call(unpack(command))
