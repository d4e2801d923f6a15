-- Tells who is there and renews what the caller holds.
-- ARGV: prefix, worker, the shards it wants (text), ms of a lease, then shard and lease of each.
-- Returns the shards whose lease is lost, then workers and what each wants, then the 64 leases, then
-- what no worker wrote: each time the kind of the key, and a text.
local worker, wants, lease_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])
local beacons, wanted = prefix .. 'bus:workers', prefix .. 'bus:wants'
local now = now_ms()
local strange = {}

local function tell(kind, text)
  table.insert(strange, kind)
  table.insert(strange, text)
end

local function is_of(kind, key, expected)
  local found = redis.call('TYPE', key).ok
  if found == expected or found == 'none' then
    return true
  end
  tell(kind, key .. ' is a ' .. found .. ' and no ' .. expected .. ': delete it')
  return false
end

local function are_shards(text)
  for number in string.gmatch(text, '%d+') do
    if #number > 2 or tonumber(number) > 63 then
      return false
    end
  end
  return string.match(text, '^[%d,]*$') ~= nil
end

local function forget(name)
  redis.call('HDEL', wanted, name)
  redis.call('ZREM', beacons, name)
end

make_way()
local wishes = {worker, wants}
local has_beacons, has_wants = is_of('workers', beacons, 'zset'), is_of('wants', wanted, 'hash')
-- Without both everybody takes what is free, and nobody gives anything up.
if has_beacons and has_wants then
  redis.call('ZADD', beacons, now + lease_ms, worker)
  redis.call('HSET', wanted, worker, wants)
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', beacons, '-inf', now)) do
    forget(one)
  end
  -- A clock that was set back, or nobody's writing: one that lives is back with its next look.
  for _, one in ipairs(redis.call('ZRANGEBYSCORE', beacons, '(' .. now + 10 * lease_ms, '+inf')) do
    if one ~= worker then
      forget(one)
      tell('workers', beacons .. ' had a worker for longer than a lease')
    end
  end
  wishes = {}
  local all = redis.call('HGETALL', wanted)
  for at = 1, #all, 2 do
    if not redis.call('ZSCORE', beacons, all[at]) or not are_shards(all[at + 1]) then
      forget(all[at])
      tell('wants', wanted .. ' had what names no worker or no shards')
    else
      table.insert(wishes, all[at])
      table.insert(wishes, all[at + 1])
    end
  end
end

local lost = {}
for at = 5, #ARGV, 2 do
  local shard = ARGV[at]
  if not is_held(shard, ARGV[at + 1]) then
    table.insert(lost, tonumber(shard))
  elseif not pending_of(shard) then
    -- Its group is gone, alone or with the stream. Nothing that its owner knows is true any more:
    -- whoever takes it next makes the group anew and begins at the beginning.
    redis.call('DEL', own(shard))
    table.insert(lost, tonumber(shard))
    tell('group', stream(shard) .. ' has no group ' .. group .. ' any more, somebody deleted it: '
      .. 'what is there is read from the beginning')
  else
    redis.call('PEXPIRE', own(shard), lease_ms)
  end
end

is_of('fence', prefix .. 'bus:fence', 'hash')
local leases = {}
for shard = 0, 63 do
  is_of('stream', stream(shard), 'stream')
  local lease = false
  if is_of('lease', own(shard), 'string') then
    lease = redis.call('GET', own(shard))
    if lease then
      local left = redis.call('PTTL', own(shard))
      local is_lease = string.match(lease, '^%d+ .')
      if left < 0 or (left > lease_ms and not is_lease) then
        -- Nobody would ever end it.
        redis.call('PEXPIRE', own(shard), lease_ms)
      end
      if left < 0 or not is_lease then
        tell('lease', own(shard) .. ' held no lease, or one without end: it ends now')
      end
    end
  else
    lease = ''
  end
  leases[shard + 1] = lease
end
return {lost, wishes, leases, strange}
