-- Show agents by id. ARGV: key of the ids, the last id before, limit. Returns a list for each.

local from = ARGV[2] ~= '' and '(' .. ARGV[2] or '-'
local result = {}
for i, id in ipairs(call('ZRANGEBYLEX', ARGV[1], from, '+', 'LIMIT', 0, ARGV[3])) do
  local f = call('HGET', P .. 'a:' .. id, 'interval')
  local s = read(id)
  result[i] = {id, s.co, s.srv, f, s.seen or '', int(s.due), s.down or ''}
end
return result
