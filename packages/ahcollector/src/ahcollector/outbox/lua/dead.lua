-- Makes events dead letters.
-- ARGV: prefix, fence, reason, when, 1 when they are events, then of the letters: how many, bytes
-- and since when they are kept; then ids.
-- Returns how many were in the queue; or -1 and the newest fence.
local fence, reason, died = ARGV[2], ARGV[3], ARGV[4]
local newest = refusal(fence)
if newest then
  return {-1, newest}
end
local bounds = {count = tonumber(ARGV[6]), bytes = tonumber(ARGV[7]), died = tonumber(ARGV[8])}
make_way()
local totals = begin()
local buried = 0
for at = 9, #ARGV do
  local entry = redis.call('ZSCORE', queue, ARGV[at]) and redis.call('HGET', bodies, ARGV[at])
  if entry then
    bury(totals, ARGV[at], entry, died, ARGV[5], reason)
    buried = buried + 1
  end
end
note_fence(fence)
trim(totals, died, bounds)
finish(totals)
return {buried}
