-- ARGV: prefix, id, now, expiry of a previous token that has none. Returns the agent, or false.
local id = ARGV[2]
local known = read(id)
if not known then
  return false
end
if known.state == 'revoked' then
  return flat(known)
end
local agent = {}
for _, field in ipairs(FIELDS) do
  agent[field] = known[field]
end
agent.state, agent.revoked = 'revoked', ARGV[3]
local fresh = {}
if known.prev ~= '' and known.prev ~= known.token then
  fresh[1] = {known.prev, known.prev_exp ~= '' and known.prev_exp or ARGV[4]}
end
if known.token ~= '' then
  fresh[#fresh + 1] = {known.token, known.exp}
end
write(id, known, agent, fresh)
return flat(agent)
