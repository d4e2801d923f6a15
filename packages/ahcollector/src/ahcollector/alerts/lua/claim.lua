-- KEYS: the unit's state, its intents, the companies of its shard. ARGV: the company. Makes the caller
-- the owner, and returns all fields of both. The first epoch is the time: where everything was forgotten,
-- an owner of before still has none that comes again.
if redis.call('HEXISTS', KEYS[1], 'epoch') == 0 then
  local now = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'epoch', string.format('%.0f', now[1] * 1000000 + now[2]))
end
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('PERSIST', KEYS[1])
redis.call('SADD', KEYS[3], ARGV[1])
return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
