-- KEYS: the unit's state, its intents, the companies of its shard. ARGV: the owner's epoch, the company.
-- Returns 0 when the unit has another owner; one that has intents stays.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('SREM', KEYS[3], ARGV[2])
end
return 1
