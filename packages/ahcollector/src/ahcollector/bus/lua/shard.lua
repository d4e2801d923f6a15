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
-- A key of another type is nobody's.
local function is_held(shard, lease)
  return redis.pcall('GET', own(shard)) == lease
end

-- What is pending in a shard; nothing where there is no stream, or no group of ours. That Redis cannot
-- say it, or that this user may not ask, is no such thing.
local function pending_of(shard)
  local state = redis.pcall('XPENDING', stream(shard), group)
  if not state.err then
    return state
  end
  if not string.find(state.err, 'NOGROUP', 1, true) and not string.find(state.err, 'WRONGTYPE', 1, true) then
    error(state)
  end
end

-- A Redis that has no memory left refuses a script's first write, unless it is one that can only
-- free some; behind such a one it lets the others pass. So leases go on in a full Redis, and what is
-- on the bus is read and acknowledged: otherwise it would stay full for ever.
local function make_way()
  redis.call('DEL', prefix .. 'bus:way')
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
