-- Appends entries. ARGV: prefix, then shard and bytes of each.
-- Returns for each why it could not be appended, or nothing.
local failures = {}
for at = 2, #ARGV, 2 do
  local reply = redis.pcall('XADD', stream(ARGV[at]), '*', 'b', ARGV[at + 1])
  table.insert(failures, type(reply) == 'table' and reply.err or '')
end
return failures
