-- Lists dead letters. ARGV: prefix, where to begin, how many, how many bytes.
-- Returns letter and fields of each. It ends with the letter at which the bytes are reached.
local found, bytes, from = {}, 0, ARGV[2]
for _ = 1, ARGV[3] do
  -- One at a time: nobody knows before how large the next ones are.
  local row = redis.call('XRANGE', dead, from, '+', 'COUNT', 1)[1]
  if not row or bytes >= tonumber(ARGV[4]) then
    break
  end
  for _, part in ipairs(row[2]) do
    bytes = bytes + #part
  end
  table.insert(found, row[1])
  table.insert(found, row[2])
  from = '(' .. row[1]
end
return found
