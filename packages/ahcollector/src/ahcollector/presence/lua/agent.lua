-- Stands before every script that changes agents: the record of an agent and its arithmetic, which
-- is that of `ahcollector.presence._state`, to the bit. KEYS[1] is the prefix of all keys. Instants
-- and intervals are kept as the text they came in, because Lua would round what it writes itself.

local P = KEYS[1]

-- Redis does not say which key a command of a script failed at, and whoever is to repair it must
-- know.
local function call(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    error({err = reply.err .. ' (' .. command .. ' ' .. key .. ')'})
  end
  return reply
end

-- What a script kept as JSON at a place.
local function decoded(text, place)
  local done, value = pcall(cjson.decode, text)
  if not done or type(value) ~= 'table' then
    error({err = 'DAMAGED no list or object in JSON (' .. place .. ')'})
  end
  return value
end

-- Whole milliseconds: nearest, and to the even one in the middle, as Python rounds.
local function ms(seconds)
  local value = seconds * 1000
  local low = math.floor(value)
  local rest = value - low
  if rest > 0.5 or (rest == 0.5 and low % 2 == 1) then
    return low + 1
  end
  return low
end

local function int(number)
  return string.format('%.0f', number)
end

local function count(what)
  return call('HINCRBY', P .. 'n', what, 1)
end

local epoch

-- The newest grace. `n` is its number, and the number in an agent's record says whether the grace
-- was applied to it.
local function grace()
  if not epoch then
    local f = call('HMGET', P .. 'grace', 'n', 'now', 'ended', 'blind', 'max', 'down_min')
    epoch = {
      n = f[1] or '0', now = tonumber(f[2] or 0), ended = tonumber(f[3] or 0),
      blind = tonumber(f[4] or 0), max = tonumber(f[5] or 0), down_min = tonumber(f[6] or 0),
    }
  end
  return epoch
end

-- After how much silence an agent is down; `down_min` where its record has none of its own.
local function threshold(s, down_min)
  return math.max(3 * s.interval, s.min and tonumber(s.min) or down_min)
end

local function grace_until(e, interval)
  return e.ended + math.max(2 * interval, e.blind + interval)
end

-- Until every agent had its turn, the newest grace is applied wherever a record is read. An agent
-- that is up has all graces but the newest, because the next one waits for the walk to end; one
-- that is down gets none, and has all of them when it comes up.
local function pardon(s)
  local e = grace()
  local wait = threshold(s, e.down_min)
  local longest = math.max(2 * s.interval, e.max + s.interval)
  local running = math.min(s.grace, ms(e.now + longest))
  s.grace = math.max(running, ms(grace_until(e, s.interval)))
  local seen = tonumber(s.seen)
  local heard = seen and e.ended < seen and seen <= e.now
  local counted = math.min(s.due, ms(e.now + wait))
  s.due = math.max(counted, s.grace + (heard and 0 or ms(wait)))
  s.n = e.n
  s.pardoned = true
end

local function read(id)
  local f = call('HMGET', P .. 'a:' .. id,
    'co', 'srv', 'interval', 'told', 'seen', 'due', 'grace', 'down', 'seq', 'n', 'removed',
    'min')
  local s = {
    id = id, known = f[1] and true or false, co = f[1], srv = f[2],
    interval = tonumber(f[3] or 0), told = f[4], seen = f[5], due = tonumber(f[6] or 0),
    grace = tonumber(f[7] or 0), down = f[8], seq = tonumber(f[9] or 0), n = f[10],
    removed = f[11], min = f[12],
  }
  -- Said here, where the key is known, and not by whoever comes to calculate with it.
  if not (s.interval and s.due and s.grace and s.seq)
    or s.seen and not tonumber(s.seen) or s.down and not tonumber(s.down)
    or s.min and not tonumber(s.min) then
    error({err = 'DAMAGED a field is no number (HMGET ' .. P .. 'a:' .. id .. ')'})
  end
  if s.known and not s.down and s.n ~= grace().n then
    pardon(s)
  end
  return s
end

-- A record for an agent that is not known; of one that was removed the seq is still there, and its
-- quiet ends.
local function create(s, co, srv, interval)
  local n = grace().n
  -- The record comes last: when one of these keys is damaged, the agent is as unknown as before.
  call('ZADD', P .. 'ids:' .. co, 0, s.id)
  call('SADD', P .. 'companies', co)
  call('ZADD', P .. 'ids', 0, s.id)
  call('HSET', P .. 'a:' .. s.id, 'co', co, 'srv', srv, 'interval', interval, 'told', '0',
    'due', '0', 'grace', '0', 'seq', int(s.seq), 'n', n)
  if s.removed then
    call('HDEL', P .. 'a:' .. s.id, 'removed')
  end
  call('PERSIST', P .. 'a:' .. s.id)
  s.known, s.co, s.srv, s.interval, s.told = true, co, srv, tonumber(interval), '0'
  s.n, s.removed = n, false
end

local function leave(id, co)
  call('ZREM', P .. 'ids:' .. co, id)
  call('ZREM', P .. 'up:' .. co, id)
  call('SREM', P .. 'down:' .. co, id)
  if call('EXISTS', P .. 'ids:' .. co) == 0 then
    call('SREM', P .. 'companies', co)
  end
end

local function seen_ms(s)
  return int(s.seen and ms(tonumber(s.seen)) or 0)
end

-- Note where a known agent is now. Returns whether anything changed.
local function settle(s, co, srv)
  if s.co == co and s.srv == srv then
    return false
  end
  if s.co ~= co then
    leave(s.id, s.co)
    call('ZADD', P .. 'ids:' .. co, 0, s.id)
    call('SADD', P .. 'companies', co)
    if s.down then
      call('SADD', P .. 'down:' .. co, s.id)
    else
      call('ZADD', P .. 'up:' .. co, seen_ms(s), s.id)
    end
  end
  s.co, s.srv = co, srv
  call('HSET', P .. 'a:' .. s.id, 'co', co, 'srv', srv)
  return true
end

-- Take the interval that an agent (told) or a setting names. Returns whether anything changed.
local function pace(s, interval, told)
  if interval == '' or not (told == '1' or s.told ~= '1') then
    return false
  end
  local number = tonumber(interval)
  if number == s.interval and told == s.told then
    return false
  end
  s.interval, s.told = number, told
  call('HSET', P .. 'a:' .. s.id, 'interval', interval, 'told', told)
  return true
end

-- Take what is set for the agent's company. `firm`: "1", "0" (only for an agent that is new) or ""
-- (nothing is told).
local function follow(s, firm, interval, down_min, usual, is_new)
  if firm == '' or (firm == '0' and not is_new) then
    return
  end
  pace(s, interval ~= '' and interval or usual, '0')
  if down_min == '' then
    if s.min then
      s.min = false
      call('HDEL', P .. 'a:' .. s.id, 'min')
    end
  elseif down_min ~= s.min then
    s.min = down_min
    call('HSET', P .. 'a:' .. s.id, 'min', down_min)
  end
end

local function keep_pardon(s)
  if s.pardoned then
    call('HSET', P .. 'a:' .. s.id, 'due', int(s.due), 'grace', int(s.grace), 'n', s.n)
    call('ZADD', P .. 'due', int(s.due), s.id)
    s.pardoned = false
  end
end

-- Decide a transition: the intent stands when the agent has moved, for this script is one step.
local function decide(s, kind, now, event_id, seen, reason)
  s.seq = math.max(ms(tonumber(now)), s.seq + 1)
  local intent = cjson.encode({
    event_id, int(s.seq), kind, now, seen or '', s.down or '', reason, s.co, s.srv,
  })
  local held = call('HGET', P .. 'tx', s.id)
  if held then
    held = string.sub(held, 1, -2) .. ',' .. intent .. ']'
  else
    held = '[' .. intent .. ']'
    call('ZADD', P .. 'tx:order', count('order'), s.id)
  end
  call('HSET', P .. 'tx', s.id, held)
  count('tx')
  local key = P .. 'a:' .. s.id
  if kind == 'down' then
    s.down = now
    call('HSET', key, 'down', now, 'seq', int(s.seq))
    call('ZREM', P .. 'due', s.id)
    call('ZREM', P .. 'up', s.id)
    call('ZREM', P .. 'up:' .. s.co, s.id)
    call('SADD', P .. 'down', s.id)
    call('SADD', P .. 'down:' .. s.co, s.id)
  else
    s.down = false
    s.n = grace().n
    call('HDEL', key, 'down')
    call('HSET', key, 'seq', int(s.seq), 'n', s.n)
    call('SREM', P .. 'down', s.id)
    call('SREM', P .. 'down:' .. s.co, s.id)
  end
  return intent
end
