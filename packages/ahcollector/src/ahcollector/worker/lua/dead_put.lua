-- Keeps a letter. ARGV: prefix, the least id, Unix seconds before which letters are too old, how
-- many are kept, of how many bytes in all, fingerprint and size of this one, then its other fields.
-- Returns how many were found damaged, then how many went for their number, size and age.
local oldest_at, letters_max, bytes_max = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local by, size = ARGV[6], tonumber(ARGV[7])
local bytes = size_of_all()
local last = tonumber(redis.call('HGET', state, 'last') or '') or 0
local newest = tonumber(redis.call('ZREVRANGE', order, 0, 0)[1] or '') or 0
local same = redis.call('HGET', index, by)
-- An id is not used again, also where Redis lost the last one.
local number = math.max(last + 1, newest + 1, tonumber(ARGV[2]))
while redis.call('EXISTS', letter(string.format('%.0f', number))) == 1 do
  number = number + 1
end
local id = string.format('%.0f', number)
local aside, gone = 0, {number = 0, size = 0, age = 0}

local function leave(one)
  local freed = remove(one)
  if freed then
    bytes = bytes - freed
    return true
  end
  aside = aside + 1
  bytes = size_of_all()
  return false
end

if same and redis.call('ZSCORE', order, same) then
  leave(same)
end
while true do
  local oldest = redis.call('ZRANGE', order, 0, 0)[1]
  if not oldest then
    break
  end
  local at = tonumber(fields(oldest, 'at')[1] or '')
  local why
  if redis.call('ZCARD', order) >= letters_max then
    why = 'number'
  elseif bytes + size > bytes_max then
    why = 'size'
  elseif at and at < oldest_at then
    why = 'age'
  else
    break
  end
  if leave(oldest) then
    gone[why] = gone[why] + 1
  end
end

redis.call('HSET', letter(id), 'by', by, 'size', size, unpack(ARGV, 8))
redis.call('ZADD', order, id, id)
redis.call('HSET', index, by, id)
redis.call('HSET', state, 'last', id)
set_size_of_all(bytes + size)
return {aside, gone.number, gone.size, gone.age}
