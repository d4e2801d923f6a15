-- Forgets events that the hub took, and remembers their ids for a while.
-- ARGV: prefix, fence, ids. Returns how many were in the queue; or -1 and the newest fence.
local fence = ARGV[2]
local newest = refusal(fence)
if newest then
  return {-1, newest}
end
make_way()
local totals = begin()
local acked = 0
for at = 3, #ARGV do
  if redis.call('ZSCORE', queue, ARGV[at]) then
    push(recent, ARGV[at])
    remove_event(totals, ARGV[at])
    acked = acked + 1
  end
end
note_fence(fence)
if acked > 0 then
  finish(totals)
end
return {acked}
