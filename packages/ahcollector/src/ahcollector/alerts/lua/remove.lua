-- KEYS: the unit's state, its intents, the companies of its shard. ARGV: the owner's epoch, the company,
-- for how many seconds the epoch is kept. Returns 0 when the unit has another owner; one that has intents
-- stays. The epoch outlives it for a while, so that no owner of before has that of a new one.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], 'epoch', string.format('%.0f', tonumber(ARGV[1]) + 1))
  redis.call('EXPIRE', KEYS[1], ARGV[3])
  redis.call('SREM', KEYS[3], ARGV[2])
end
return 1
