-- Reads pending entries. ARGV: prefix, shard, lease, entries.
-- Returns whether the lease is held, then entry, tries and bytes of each that is pending. One whose
-- body somebody deleted is pending no more, after this.
local shard, lease = ARGV[2], ARGV[3]
if not is_held(shard, lease) then
  return {0}
end
local found = {1}
for at = 4, #ARGV do
  local row = redis.call('XPENDING', stream(shard), group, ARGV[at], ARGV[at], 1)[1]
  if row then
    local body = redis.call('XRANGE', stream(shard), ARGV[at], ARGV[at])[1]
    if body then
      local fields = body[2]
      table.insert(found, ARGV[at])
      table.insert(found, row[4])
      table.insert(found, fields[1] == 'b' and fields[2] or '')
    else
      redis.call('XACK', stream(shard), group, ARGV[at])
    end
  end
end
return found
