-- KEYS: the agent's hash. ARGV: the oldest hour that is kept, how many seconds the hash is kept, start
-- and first of the teller's window, then a fingerprint and an hour for each series. Does what `taken`
-- of `ahcollector.budget.base` does, and returns the window (start, first, begun).
local key, oldest = KEYS[1], tonumber(ARGV[1])
local begun = 0
for at = 5, #ARGV, 2 do
  local known = tonumber(redis.call('HGET', key, ARGV[at]) or '')
  if not known or known < oldest then
    begun = begun + 1
    known = nil
  end
  if not known or known < tonumber(ARGV[at + 1]) then
    redis.call('HSET', key, ARGV[at], ARGV[at + 1])
  end
end
local start, first = ARGV[3], ARGV[4]
local window = redis.call('HMGET', key, 'start', 'first', 'begun')
local since, before = tonumber(window[1] or ''), tonumber(window[3] or '')
if since and before and tonumber(start) < since + 3600 then
  start, first, begun = window[1], window[2], before + begun
end
redis.call('HSET', key, 'start', start, 'first', first, 'begun', string.format('%.0f', begun))
redis.call('EXPIRE', key, ARGV[2])
return redis.call('HMGET', key, 'start', 'first', 'begun')
