-- KEYS: departures (hash), order (zset), version. ARGV: field, at_ms, series_at_ms or "", what is
-- older than that goes, how many may stay. Returns how many went that were not that old.
local at, series = tonumber(ARGV[2]), tonumber(ARGV[3])
local known = redis.call('HGET', KEYS[1], ARGV[1])
local known_at, known_series = string.match(known or '', '^(%d+) (%d*)$')
if known_at then
  at = math.max(at, tonumber(known_at))
  if known_series ~= '' then
    series = math.max(series or 0, tonumber(known_series))
  end
end
local value = string.format('%.0f ', at) .. (series and string.format('%.0f', series) or '')
if value == known then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], value)
redis.call('ZADD', KEYS[2], string.format('%.0f', at), ARGV[1])
-- The time, and no counter: one that began anew with an emptied Redis could be as it was.
local now = redis.call('TIME')
redis.call('SET', KEYS[3], now[1] .. '.' .. now[2])
-- A few at a time: Redis does nothing else meanwhile, and each note takes some away.
local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. ARGV[4], 'LIMIT', 0, 100)
local old = #gone
local over = redis.call('ZCARD', KEYS[2]) - old - tonumber(ARGV[5])
if over > 0 then
  gone = redis.call('ZRANGE', KEYS[2], 0, math.min(old + over, 100) - 1)
end
for _, field in ipairs(gone) do
  redis.call('HDEL', KEYS[1], field)
  redis.call('ZREM', KEYS[2], field)
end
return #gone - old
