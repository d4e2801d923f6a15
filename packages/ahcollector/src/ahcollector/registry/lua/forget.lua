-- Forgets some agents of a company, or of one of its servers.
-- ARGV: prefix, 'company' or 'server', company, server, how many at most. Returns how many are left, then id,
-- company and server of each one that is gone.
local company, server = ARGV[3], ARGV[4]
local members = ARGV[2] == 'company' and key('co', company) or server_key(company, server)
local gone, words = {0}, {}
for _, id in ipairs(redis.call('SRANDMEMBER', members, ARGV[5])) do
  local known = forget(id, words)
  -- In order it is out already; a damaged agent must not stay for ever.
  redis.call('SREM', members, id)
  redis.call('SREM', key('act', company), id)
  gone[#gone + 1] = id
  gone[#gone + 1] = known and known.company_id or company
  gone[#gone + 1] = known and known.server_id or server
end
recount(company)
tell(words)
gone[1] = redis.call('SCARD', members)
return gone
