-- Takes tries back that ended with a lease and not with a process, unless somebody has tried since.
-- No lease is asked for: who lost it is who knows. ARGV: prefix, then shard, entry and tries of each.
for at = 2, #ARGV, 3 do
  local key, entry, tries = stream(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2])
  -- Without a group there is nothing to take back.
  local row = redis.pcall('XPENDING', key, group, entry, entry, 1)[1]
  if row and row[4] == tries then
    redis.call('XCLAIM', key, group, consumer, 0, entry, 'RETRYCOUNT', tries - 1, 'JUSTID')
  end
end
return 1
