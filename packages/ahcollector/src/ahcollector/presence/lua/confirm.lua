-- Drop an intent. ARGV: agent, event id. Returns 1, 0 when it is not there, -1 when an older one of
-- the agent is.

local id, event_id = ARGV[1], ARGV[2]
local held = call('HGET', P .. 'tx', id)
if not held then
  return 0
end
local intents = decoded(held, P .. 'tx ' .. id)
local place = 0
for i, intent in ipairs(intents) do
  if intent[1] == event_id then
    place = i
  end
end
if place ~= 1 then
  return place == 0 and 0 or -1
end
table.remove(intents, 1)
call('HINCRBY', P .. 'n', 'tx', -1)
if #intents == 0 then
  call('HDEL', P .. 'tx', id)
  call('HDEL', P .. 'tx:lease', id)
  call('ZREM', P .. 'tx:order', id)
else
  call('HSET', P .. 'tx', id, cjson.encode(intents))
end
return 1
