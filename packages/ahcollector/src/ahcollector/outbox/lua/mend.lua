-- Puts bodies that stand in no order at its end: somebody deleted the order.
-- ARGV: prefix, 'events' or 'letters', cursor. Returns where to go on, '0' at the end, and how many
-- were put there.
local hash, order = bodies, queue
if ARGV[2] == 'letters' then
  hash, order = dead, deaths
end
make_way()
local page = redis.call('HSCAN', hash, ARGV[3], 'COUNT', 200)
local mended = 0
for at = 1, #page[2], 2 do
  local id = page[2][at]
  if not redis.call('ZSCORE', order, id) then
    push(order, id)
    mended = mended + 1
  end
end
return {page[1], mended}
