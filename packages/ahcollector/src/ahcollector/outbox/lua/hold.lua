-- Takes or renews the sender's lease. ARGV: prefix, holder, ms of a lease, a fence to be above.
-- Returns the fence of the lease that is held; '' when another holds it.
-- The fence rises although Redis lost the last one: it is the time, or one more than the last.
local lease, me, floor = prefix .. 'outbox:sender', ARGV[2], ARGV[4]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local last = newest_fence()

local held = redis.call('GET', lease)
if held then
  local fence, holder = string.match(held, '^(%d+) (.+)$')
  if holder == me and is_fence(fence) and not less(fence, last) and less(floor, fence) then
    redis.call('PEXPIRE', lease, ARGV[3])
    return fence
  end
  -- What nobody wrote as a lease, or what would never end, is none.
  if holder and holder ~= me and redis.call('PTTL', lease) > 0 then
    return ''
  end
end

make_way()
redis.call('SET', fences, less(last, floor) and floor or last)
redis.call('INCR', fences)
-- At its end, too, the counter goes on with the time.
local risen = redis.call('GET', fences)
if less(risen, now) or not is_fence(risen) then
  redis.call('SET', fences, now)
end
local fence = redis.call('GET', fences)
redis.call('SET', lease, fence .. ' ' .. me, 'PX', ARGV[3])
return fence
