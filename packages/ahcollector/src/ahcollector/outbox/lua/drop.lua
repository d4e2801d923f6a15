-- Gives the sender's lease up. ARGV: prefix, holder, a fence that the next must be above.
local lease = prefix .. 'outbox:sender'
local held = redis.call('GET', lease)
local holder = held and string.match(held, '^%d+ (.+)$')
make_way()
if holder == ARGV[2] then
  redis.call('DEL', lease)
end
if less(newest_fence(), ARGV[3]) then
  redis.call('SET', fences, ARGV[3])
end
return 1
