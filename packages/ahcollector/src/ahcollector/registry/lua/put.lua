-- ARGV: prefix, id, now, company, server, state, version, token, exp, prev, prev_exp, then a hash
-- and its expiry for each token. Returns whether it applied, the agent before (or false), and now.
local id, now = ARGV[2], ARGV[3]
local known = read(id)
local agent = {
  company_id = ARGV[4], server_id = ARGV[5], state = ARGV[6], ver = ARGV[7], newest = ARGV[7],
  token = ARGV[8], exp = ARGV[9], prev = ARGV[10], prev_exp = ARGV[11], revoked = '',
}
if known then
  local applies
  if known.state == 'revoked' and agent.state ~= 'revoked' then
    applies = newer(agent.ver, known.newest)
  else
    applies = agent.ver == '0' or not newer(known.newest, agent.ver)
  end
  if not applies then
    return {0, flat(known), flat(known)}
  end
  if newer(known.newest, agent.ver) then
    agent.newest = known.newest
  end
end
if agent.state == 'revoked' then
  agent.revoked = now
  if known and tonumber(known.revoked) then
    agent.revoked = known.revoked
  end
end
local fresh = {}
for position = 12, #ARGV, 2 do
  fresh[#fresh + 1] = {ARGV[position], ARGV[position + 1]}
end
local before = known and flat(known)
write(id, known, agent, fresh)
return {1, before or false, flat(agent)}
