-- Lease contacts. ARGV: limit, holder, its life, lease's now in ms, lease in ms. Returns {lease id,
-- agent, last seen, agent, …}. First it takes back what was leased to a process that is gone: its
-- lease ended (or ends much further ahead than any can), or the holder began another life.

local limit, holder, life = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local now, lease = tonumber(ARGV[4]), tonumber(ARGV[5])
local fields = call('HGETALL', P .. 'unrep:lease')
local ended = {}
for i = 1, #fields, 2 do
  local held = decoded(fields[i + 1], P .. 'unrep:lease ' .. fields[i])
  local left = held.ends_ms - now
  if left <= 0 or left > 2 * lease or (held.holder == holder and held.life ~= life) then
    ended[#ended + 1] = {number = tonumber(fields[i]), agents = held.agents}
  end
end
table.sort(ended, function(a, b) return a.number < b.number end)
for _, one in ipairs(ended) do
  call('HDEL', P .. 'unrep:lease', int(one.number))
  give_back(one.agents)
end

local number = count('lease')
local result = {number}
local popped = call('ZPOPMIN', P .. 'unrep', limit)
local agents = {}
for i = 1, #popped, 2 do
  -- One whose record cannot be read must not keep the others from being told.
  local done, seen = pcall(call, 'HGET', P .. 'a:' .. popped[i], 'seen')
  if done and tonumber(seen or '') then
    agents[#agents + 1] = popped[i]
    result[#result + 1] = popped[i]
    result[#result + 1] = seen
  end
end
if #agents > 0 then
  call('HSET', P .. 'unrep:lease', int(number), cjson.encode({
    ends_ms = now + lease, holder = holder, life = life, agents = agents,
  }))
end
return result
