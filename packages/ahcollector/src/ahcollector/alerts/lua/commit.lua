-- KEYS: the unit's state, its intents. ARGV: the owner's epoch, the newest seq, 1 where the snapshot is
-- replaced; then how many fields are set and each with its value, how many go and each, how many
-- intents there are and each with its event. Returns 0 when the unit has another owner.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
if ARGV[3] == '1' then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if field ~= 'epoch' and field ~= 'seq' then
      redis.call('HDEL', KEYS[1], field)
    end
  end
end
-- Both are whole numbers below 2^53.
local seq = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
if not seq or seq < tonumber(ARGV[2]) then
  redis.call('HSET', KEYS[1], 'seq', ARGV[2])
end
local at = 4
for _ = 1, tonumber(ARGV[at]) do
  redis.call('HSET', KEYS[1], ARGV[at + 1], ARGV[at + 2])
  at = at + 2
end
at = at + 1
for _ = 1, tonumber(ARGV[at]) do
  redis.call('HDEL', KEYS[1], ARGV[at + 1])
  at = at + 1
end
at = at + 1
for _ = 1, tonumber(ARGV[at]) do
  redis.call('HSET', KEYS[2], ARGV[at + 1], ARGV[at + 2])
  at = at + 2
end
return 1
