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
write(id, known, agent, tokens_of(agent, ARGV[4]))
return flat(agent)
