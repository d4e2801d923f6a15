-- Puts a dead letter on its shard again. ARGV: prefix, letter, shard. Returns whether it was there.
local body = redis.call('XRANGE', dead, ARGV[2], ARGV[2])[1]
if not body then
  return 0
end
local fields = body[2]
if fields[1] == 'shard' and fields[3] == 'reason' and fields[5] == 'at' and #fields > 6 then
  -- The first three fields are those of the letter.
  redis.call('XADD', stream(ARGV[3]), '*', unpack(fields, 7))
else
  -- No worker wrote it, but it may hold an entry.
  local entry
  for at = #fields - 1, 1, -2 do
    entry = fields[at] == 'b' and fields[at + 1] or entry
  end
  if not entry then
    return 0
  end
  redis.call('XADD', stream(ARGV[3]), '*', 'b', entry)
end
redis.call('XDEL', dead, ARGV[2])
return 1
