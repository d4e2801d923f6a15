-- Returns letters, oldest first.
-- ARGV: prefix, the id they stand behind or '', how many, bytes after which no more is added.
-- Returns the last id that was looked at or '', then id and letter of each.
local begin = 0
if ARGV[2] ~= '' then
  begin = (redis.call('ZRANK', deaths, ARGV[2]) or -1) + 1
end
local found, size = {''}, 0
for _, id in ipairs(redis.call('ZRANGE', deaths, begin, begin + tonumber(ARGV[3]) - 1)) do
  local letter = redis.call('HGET', dead, id)
  found[1] = id
  -- One without a body is dropped when its turn comes; see trim.
  if letter then
    found[#found + 1] = id
    found[#found + 1] = letter
    size = size + #letter
    if size >= tonumber(ARGV[4]) then
      break
    end
  end
end
return found
