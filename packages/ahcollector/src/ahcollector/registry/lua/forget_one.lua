-- ARGV: prefix, id, newest version it may have. Returns company and server, or false.
local known = read(ARGV[2])
if not known or newer(known.newest, ARGV[3]) then
  return false
end
local words, recounted = {}, {}
forget(ARGV[2], words, recounted)
forgotten(words, recounted)
return {known.company_id, known.server_id}
