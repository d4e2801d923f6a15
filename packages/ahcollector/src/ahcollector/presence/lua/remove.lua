-- Forget an agent. ARGV: agent, now, reason, event id, seconds for which its seq is kept, seconds for
-- which the removal of an id without one is. Of a removal the instant stays: see `touch`.

local s = read(ARGV[1])
local key = P .. 'a:' .. s.id
if not s.known then
  call('HSET', key, 'removed', ARGV[2])
  call('EXPIRE', key, call('HEXISTS', key, 'seq') == 1 and ARGV[5] or ARGV[6])
  return 0
end
if s.down then
  decide(s, 'up', ARGV[2], ARGV[4], s.seen, ARGV[3])
end
leave(s.id, s.co)
call('ZREM', P .. 'ids', s.id)
call('ZREM', P .. 'up', s.id)
call('ZREM', P .. 'due', s.id)
call('SREM', P .. 'down', s.id)
call('ZREM', P .. 'unrep', s.id)
call('DEL', key)
call('HSET', key, 'seq', int(s.seq), 'removed', ARGV[2])
call('EXPIRE', key, ARGV[5])
return 1
