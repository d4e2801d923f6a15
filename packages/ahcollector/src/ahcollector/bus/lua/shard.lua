-- What the scripts of a shard begin with. ARGV[1] is the prefix of all keys.
local prefix = ARGV[1]
local group = 'workers'
local consumer = 'owner'
local dead = prefix .. 'bus:dead'

local function stream(shard)
  return prefix .. 'bus:s:' .. shard
end

local function own(shard)
  return prefix .. 'bus:own:' .. shard
end

-- A lease is the text that its winner wrote: its fence, and his name.
local function is_held(shard, lease)
  return redis.call('GET', own(shard)) == lease
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
