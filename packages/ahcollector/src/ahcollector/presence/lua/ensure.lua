-- Make an agent known. ARGV: agent, company, server, now, interval or "", down_min, usual interval,
-- and of the company's rule how firm it is ("1", "0", "": there is none), interval or "", down_min or
-- "".

local id, co, srv, now, interval = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local usual, firm, ruled, down_min = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local s = read(id)
local is_new = not s.known
if is_new then
  create(s, co, srv, usual)
else
  keep_pardon(s)
  settle(s, co, srv)
end
follow(s, firm, ruled, down_min, usual, is_new)
if firm == '' or ruled == '' and (firm == '1' or is_new) then
  pace(s, interval, '0')
end
if not is_new then
  return 0
end
local until_ = now + 2 * s.interval
local e = grace()
if e.n ~= '0' and e.ended <= now then
  until_ = math.max(until_, grace_until(e, s.interval))
end
s.due = ms(until_ + threshold(s, tonumber(ARGV[6])))
call('HSET', P .. 'a:' .. id, 'due', int(s.due))
call('ZADD', P .. 'due', int(s.due), id)
call('ZADD', P .. 'up', 0, id)
call('ZADD', P .. 'up:' .. co, 0, id)
return 1
