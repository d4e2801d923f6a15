-- Drop intents. ARGV: agent, event id, agent, event id, ... Returns 0, or the place (from 1) of the
-- first pair of which an older one of the agent is there: that one and those behind it stay.

for at = 1, #ARGV, 2 do
  local id, event_id = ARGV[at], ARGV[at + 1]
  local held = call('HGET', P .. 'tx', id)
  local intents = held and decoded(held, P .. 'tx ' .. id) or {}
  local place = 0
  for i, intent in ipairs(intents) do
    if intent[1] == event_id then
      place = i
    end
  end
  if place > 1 then
    return (at + 1) / 2
  end
  if place == 1 then
    table.remove(intents, 1)
    call('HINCRBY', P .. 'n', 'tx', -1)
    if #intents == 0 then
      call('HDEL', P .. 'tx', id)
      call('HDEL', P .. 'tx:lease', id)
      call('ZREM', P .. 'tx:order', id)
    else
      call('HSET', P .. 'tx', id, cjson.encode(intents))
    end
  end
end
return 0
