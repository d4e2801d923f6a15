-- What the scripts of dead batches begin with. ARGV[1] is the prefix of all keys.
local prefix = ARGV[1]
local order = prefix .. 'wk:dead'
local state = prefix .. 'wk:dead:state'
local index = prefix .. 'wk:dead:by'
local damaged = prefix .. 'wk:dead:damaged'

local function letter(id)
  return prefix .. 'wk:dead:l:' .. id
end

-- Returns fields of a letter; none when it is no hash.
local function fields(id, ...)
  local row = redis.pcall('HMGET', letter(id), ...)
  if row.err and not string.find(row.err, 'WRONGTYPE', 1, true) then
    -- Redis cannot, or this user may not: that says nothing of the letter.
    error(row)
  end
  return row.err and {} or row
end

-- How many bytes are kept; counted anew when it is not known.
local function size_of_all()
  local bytes = tonumber(redis.call('HGET', state, 'bytes') or '')
  if bytes then
    return bytes
  end
  bytes = 0
  for _, id in ipairs(redis.call('ZRANGE', order, 0, -1)) do
    bytes = bytes + (tonumber(fields(id, 'size')[1] or '') or 0)
  end
  return bytes
end

-- Takes a letter out of the order and keeps what there is of it, whatever that is.
local function set_aside(id)
  redis.call('ZREM', order, id)
  if redis.call('EXISTS', letter(id)) == 1 then
    redis.call('RENAME', letter(id), damaged .. ':' .. id)
    redis.call('SADD', damaged, id)
  end
  redis.call('HDEL', state, 'bytes')
end

-- Deletes a letter and returns its size; sets one aside that tells none, and returns nothing.
local function remove(id)
  local row = fields(id, 'size', 'by')
  local size = tonumber(row[1] or '')
  if not size then
    set_aside(id)
    return nil
  end
  redis.call('UNLINK', letter(id))
  redis.call('ZREM', order, id)
  if row[2] and redis.call('HGET', index, row[2]) == id then
    redis.call('HDEL', index, row[2])
  end
  return size
end

local function set_size_of_all(bytes)
  redis.call('HSET', state, 'bytes', string.format('%.0f', math.max(0, bytes)))
end
