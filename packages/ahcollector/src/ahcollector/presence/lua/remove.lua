-- Forget an agent. ARGV: agent, now, reason, event id, seconds for which its seq is kept.

local s = read(ARGV[1])
if not s.known then
  return 0
end
if s.down then
  decide(s, 'up', ARGV[2], ARGV[4], s.seen, ARGV[3])
end
leave(s.id, s.co)
redis.call('ZREM', P .. 'ids', s.id)
redis.call('ZREM', P .. 'up', s.id)
redis.call('ZREM', P .. 'due', s.id)
redis.call('SREM', P .. 'down', s.id)
redis.call('ZREM', P .. 'unrep', s.id)
redis.call('DEL', P .. 'a:' .. s.id)
redis.call('HSET', P .. 'a:' .. s.id, 'seq', int(s.seq))
redis.call('EXPIRE', P .. 'a:' .. s.id, ARGV[5])
return 1
