-- Returns letters by their ids. ARGV: prefix, ids.
-- Returns id, place and letter of each that is there.
local found = {}
for at = 2, #ARGV do
  local place = redis.call('ZSCORE', deaths, ARGV[at])
  local letter = place and redis.call('HGET', dead, ARGV[at])
  if letter then
    found[#found + 1] = ARGV[at]
    found[#found + 1] = place
    found[#found + 1] = letter
  end
end
return found
