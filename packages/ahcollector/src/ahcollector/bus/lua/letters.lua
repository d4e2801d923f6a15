-- Lists dead letters. ARGV: prefix, where to begin, how many. Returns letter and fields of each.
local found = {}
for _, row in ipairs(redis.call('XRANGE', dead, ARGV[2], '+', 'COUNT', ARGV[3])) do
  table.insert(found, row[1])
  table.insert(found, row[2])
end
return found
