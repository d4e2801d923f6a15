-- KEYS: the unit's state, where it is kept aside. ARGV: the owner's epoch. Returns 0 when the unit has
-- another owner.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[2])
local all = redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
  redis.call('HSET', KEYS[2], all[at], all[at + 1])
end
return 1
