-- Deletes letters. ARGV: prefix, then the ids; or the largest id, '<=' and how many at most.
-- Returns how many were looked at, how many were deleted, and how many were damaged.
local ids = {unpack(ARGV, 2)}
if ids[2] == '<=' then
  ids = redis.call('ZRANGEBYSCORE', order, '-inf', ids[1], 'LIMIT', 0, ids[3])
end
local bytes = size_of_all()
local deleted, aside = 0, 0
for _, id in ipairs(ids) do
  if redis.call('ZSCORE', order, id) then
    local freed = remove(id)
    if freed then
      deleted = deleted + 1
      bytes = bytes - freed
    else
      aside = aside + 1
    end
  end
end
if aside > 0 then
  bytes = size_of_all()
end
set_size_of_all(bytes)
return {#ids, deleted, aside}
