-- Lists letters. ARGV: prefix, the id behind which to begin, how many, then the fields to return.
-- Returns id and fields of each.
local found = {}
local ids = redis.call('ZRANGEBYSCORE', order, '(' .. ARGV[2], '+inf', 'LIMIT', 0, ARGV[3])
for _, id in ipairs(ids) do
  table.insert(found, id)
  table.insert(found, fields(id, unpack(ARGV, 4)))
end
return found
