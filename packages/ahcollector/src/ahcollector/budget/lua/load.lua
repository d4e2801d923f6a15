-- KEYS: the agent's hash. ARGV: the oldest hour that is kept. Removes older series, and returns the
-- window (start, first, begun) and the fields that are left.
local window = redis.call('HMGET', KEYS[1], 'start', 'first', 'begun')
local all = redis.call('HGETALL', KEYS[1])
local oldest = tonumber(ARGV[1])
local kept, old = {}, {}
for at = 1, #all, 2 do
  if #all[at] == 16 then
    local hour = tonumber(all[at + 1])
    if hour and hour >= oldest then
      kept[#kept + 1] = all[at]
      kept[#kept + 1] = all[at + 1]
    else
      old[#old + 1] = all[at]
    end
  end
end
for at = 1, #old, 1000 do
  redis.call('HDEL', KEYS[1], unpack(old, at, math.min(at + 999, #old)))
end
return {window, kept}
