-- ARGV: prefix, id, now, company, server, state, version, token, exp, prev, prev_exp, end of a
-- previous token that has none, '1' for a renewal. Returns whether it applied, the agent before (or
-- false), and now.
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
if known and ARGV[13] ~= '1' and agent.ver ~= '0' and known.ver == agent.ver
  and known.token == agent.token and known.prev ~= '' then
  agent.prev, agent.prev_exp = known.prev, known.prev_exp
end
if agent.state == 'revoked' then
  agent.revoked = now
  if known and tonumber(known.revoked) then
    agent.revoked = known.revoked
  end
end
local before = known and flat(known)
write(id, known, agent, tokens_of(agent, ARGV[12]))
return {1, before or false, flat(agent)}
