-- Reads pending entries. ARGV: prefix, shard, lease, bytes, entries.
-- Returns whether the lease is held, how many of the entries were looked at (none behind the one
-- with which there are so many bytes), then entry, tries and bytes of each that is pending. One whose
-- body somebody deleted is pending no more, after this.
local shard, lease = ARGV[2], ARGV[3]
if not is_held(shard, lease) then
  return {0}
end
local left = tonumber(ARGV[4])
local found = {1, 0}
for at = 5, #ARGV do
  if left <= 0 then
    break
  end
  found[2] = found[2] + 1
  local row = redis.call('XPENDING', stream(shard), group, ARGV[at], ARGV[at], 1)[1]
  if row then
    local body = redis.call('XRANGE', stream(shard), ARGV[at], ARGV[at])[1]
    if body then
      local fields = body[2]
      local data = fields[1] == 'b' and fields[2] or ''
      left = left - #data
      table.insert(found, ARGV[at])
      table.insert(found, row[4])
      table.insert(found, data)
    else
      redis.call('XACK', stream(shard), group, ARGV[at])
    end
  end
end
return found
