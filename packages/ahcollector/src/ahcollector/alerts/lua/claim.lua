-- KEYS: the unit's state, its intents, the companies of its shard. ARGV: the company. Makes the caller
-- the owner, and returns all fields of both.
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('PERSIST', KEYS[1])
redis.call('SADD', KEYS[3], ARGV[1])
return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
