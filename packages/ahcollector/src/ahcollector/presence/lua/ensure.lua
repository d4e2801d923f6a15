-- Make an agent known. ARGV: agent, company, server, now, interval or "", down_min, usual interval.

local id, co, srv, now, interval = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local s = read(id)
if s.known then
  keep_pardon(s)
  settle(s, co, srv)
  pace(s, interval, '0')
  return 0
end
create(s, co, srv, ARGV[7])
pace(s, interval, '0')
local until_ = now + 2 * s.interval
local e = grace()
if e.n ~= '0' and e.ended <= now then
  until_ = math.max(until_, grace_until(e, s.interval))
end
s.due = ms(until_ + threshold(s.interval, tonumber(ARGV[6])))
call('HSET', P .. 'a:' .. id, 'due', int(s.due))
call('ZADD', P .. 'due', int(s.due), id)
call('ZADD', P .. 'up', 0, id)
call('ZADD', P .. 'up:' .. co, 0, id)
return 1
