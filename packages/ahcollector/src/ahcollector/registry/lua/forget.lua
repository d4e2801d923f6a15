-- Forgets some agents of a company, or of one of its servers.
-- ARGV: prefix, 'company' or 'server', company, server, how many at most. Returns how many are left, then id,
-- company and server of each one that is gone.
local company, server = ARGV[3], ARGV[4]
local members = ARGV[2] == 'company' and key('co', company) or server_key(company, server)
local gone, words, recounted = {0}, {}, {[company] = true}
for _, id in ipairs(redis.call('SRANDMEMBER', members, ARGV[5])) do
  local known = forget(id, words, recounted)
  if not known or known.company_id ~= company or (server ~= '' and known.server_id ~= server) then
    -- A damaged agent must not stay in the list for ever.
    redis.call('SREM', members, id)
    redis.call('SREM', key('act', company), id)
  end
  gone[#gone + 1] = id
  gone[#gone + 1] = known and known.company_id or company
  gone[#gone + 1] = known and known.server_id or server
end
forgotten(words, recounted)
gone[1] = redis.call('SCARD', members)
return gone
