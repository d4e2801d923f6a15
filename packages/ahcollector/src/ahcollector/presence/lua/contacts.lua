-- Stands before the scripts that give contacts back: behind those that came meanwhile, and only of
-- agents that are known and were heard.

local function give_back(agents)
  for _, id in ipairs(agents) do
    local f = call('HMGET', P .. 'a:' .. id, 'co', 'seen')
    if f[1] and f[2] then
      call('ZADD', P .. 'unrep', 'NX', count('unrep'), id)
    end
  end
end
