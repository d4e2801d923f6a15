-- Puts events at the end of the queue: all that are new, or none when there is no room.
-- ARGV: prefix, events at most, bytes at most, then id and entry of each.
-- Returns how many were new; or -1, how many there are and their bytes.
local totals = begin()
local fresh, named, size = {}, {}, 0
for at = 4, #ARGV, 2 do
  local id = ARGV[at]
  -- An id is held when it stands in an order: a body alone would never come out.
  if not named[id] and not redis.call('ZSCORE', queue, id) and not redis.call('ZSCORE', recent, id)
    and not redis.call('ZSCORE', deaths, id) then
    named[id] = true
    fresh[#fresh + 1] = at
    size = size + #ARGV[at + 1]
  end
end
if #fresh == 0 then
  return {0}
end
if totals.events + #fresh > tonumber(ARGV[2]) or totals.bytes + size > tonumber(ARGV[3]) then
  return {-1, totals.events, totals.bytes}
end
for _, at in ipairs(fresh) do
  add_event(totals, ARGV[at], ARGV[at + 1])
end
finish(totals)
return {#fresh}
