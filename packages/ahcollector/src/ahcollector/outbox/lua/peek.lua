-- Returns the oldest entries and drops ids without a body on the way.
-- ARGV: prefix, how many, bytes after which no more is added.
-- Returns how many ids were dropped, how many bodies stand in no order, then id and entry of each.
local found, gone, size = {0, 0}, {}, 0
for _, id in ipairs(redis.call('ZRANGE', queue, 0, tonumber(ARGV[2]) - 1)) do
  local entry = redis.call('HGET', bodies, id)
  if entry then
    found[#found + 1] = id
    found[#found + 1] = entry
    size = size + #entry
    if size >= tonumber(ARGV[3]) then
      break
    end
  else
    gone[#gone + 1] = id
  end
end
if #gone > 0 then
  make_way()
  local totals = begin()
  for _, id in ipairs(gone) do
    remove_bodiless(totals, queue, id)
  end
  finish(totals)
  found[1] = #gone
end
found[2] = math.max(0, redis.call('HLEN', bodies) - redis.call('ZCARD', queue))
return found
