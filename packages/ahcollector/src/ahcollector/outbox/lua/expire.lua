-- Makes dead letters of what was appended before a time, as far as it stands at the head.
-- ARGV: prefix, that time, reason, when, how many of the letters are kept, their bytes and since
-- when, how many entries are looked at.
-- Returns how many expired, how many were unreadable, how many ids had no body, whether there may
-- be more, and how many letters stand in no order.
local cutoff, reason, died = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local bounds = {count = tonumber(ARGV[5]), bytes = tonumber(ARGV[6]), died = tonumber(ARGV[7])}
make_way()
local totals = begin()
local expired, unreadable, more = 0, 0, 1
local head = redis.call('ZRANGE', queue, 0, tonumber(ARGV[8]) - 1)
if #head < tonumber(ARGV[8]) then
  more = 0
end
for _, id in ipairs(head) do
  local entry = redis.call('HGET', bodies, id)
  local at = entry and parse_entry(entry)
  if not entry then
    remove_bodiless(totals, queue, id)
  elseif not at then
    bury(totals, id, entry, died, '0', 'unreadable')
    unreadable = unreadable + 1
  elseif tonumber(at) < cutoff then
    bury(totals, id, entry, died, '1', reason)
    expired = expired + 1
  else
    more = 0
    break
  end
end
trim(totals, died, bounds)
finish(totals)
local astray = math.max(0, redis.call('HLEN', dead) - redis.call('ZCARD', deaths))
return {expired, unreadable, totals.bodiless_now, more, astray}
