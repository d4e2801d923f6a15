-- Tells the state. ARGV: prefix.
-- Returns: events, the oldest entry or '', letters, their bytes, letters dropped, ids dropped.
local first = redis.call('ZRANGE', queue, 0, 0)[1]
local kept = redis.call('HMGET', sums, 'dead_bytes', 'dead_dropped', 'bodiless')
return {
  redis.call('ZCARD', queue),
  first and redis.call('HGET', bodies, first) or '',
  redis.call('ZCARD', deaths),
  tonumber(kept[1]) or 0,
  tonumber(kept[2]) or 0,
  tonumber(kept[3]) or 0,
}
