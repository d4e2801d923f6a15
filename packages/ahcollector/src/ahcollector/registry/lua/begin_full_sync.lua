-- ARGV: prefix, now, interval, claim. Returns 1 when the caller is to begin.
local now = tonumber(ARGV[2])
local function within(field, seconds)
  local since = tonumber(redis.call('HGET', key('full'), field) or '')
  return since and since <= now and now < since + seconds
end
if within('done', tonumber(ARGV[3])) or within('began', tonumber(ARGV[4])) then
  return 0
end
redis.call('HSET', key('full'), 'began', ARGV[2])
return 1
