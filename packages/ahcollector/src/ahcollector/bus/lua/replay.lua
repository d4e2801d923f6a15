-- Puts a dead letter on its shard again. ARGV: prefix, letter, shard. Returns whether it was there.
local body = redis.call('XRANGE', dead, ARGV[2], ARGV[2])[1]
if not body then
  return 0
end
-- The first three fields are those of the letter.
redis.call('XADD', stream(ARGV[3]), '*', unpack(body[2], 7))
redis.call('XDEL', dead, ARGV[2])
return 1
