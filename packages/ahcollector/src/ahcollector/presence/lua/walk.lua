-- Apply the newest grace to the next agents by id. ARGV: how many. Returns 1 when there are no more.

local f = call('HMGET', P .. 'grace', 'walk', 'at')
if f[1] ~= '1' then
  return 1
end
local page = tonumber(ARGV[1])
local from = (f[2] and f[2] ~= '') and '(' .. f[2] or '-'
local ids = call('ZRANGEBYLEX', P .. 'ids', from, '+', 'LIMIT', 0, page)
for _, id in ipairs(ids) do
  keep_pardon(read(id))
end
if #ids < page then
  call('HSET', P .. 'grace', 'walk', '0', 'at', '')
  return 1
end
call('HSET', P .. 'grace', 'at', ids[#ids])
return 0
