-- What the outbox's scripts share. It stands before each of them; ARGV[1] is the prefix of keys.
--
-- An entry is the text "<Unix seconds> <event>"; a letter is "<when it died> <when it was appended,
-- or -> <1 when it is an event, else 0> <bytes of the reason> <reason><event>". Fences are decimal
-- strings and are compared as such. All are under the largest that the wire carries, 2^53 - 1, so
-- that there is always one above.

local prefix = ARGV[1]
local queue, bodies = prefix .. 'ob:q', prefix .. 'ob:e'
local dead, deaths = prefix .. 'ob:dead', prefix .. 'ob:dead:q'
local recent, sums = prefix .. 'ob:recent', prefix .. 'ob:n'
local fences = prefix .. 'ob:fence'

local RECENT_MAX = 10000
local DROPS_MAX = 1000
local FENCE_MAX = '9007199254740991'

local function less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

local function is_fence(text)
  return string.match(text, '^%d+$') and less(text, FENCE_MAX)
end

local function newest_fence()
  local newest = redis.call('GET', fences)
  if newest and is_fence(newest) then
    return newest
  end
  return '0'
end

-- Returns the newest fence when `fence` is an older one or none at all, else nil. No fence is ''.
local function refusal(fence)
  local newest = newest_fence()
  if fence ~= '' and (not is_fence(fence) or less(fence, newest)) then
    return newest
  end
end

local function note_fence(fence)
  if fence ~= '' and less(newest_fence(), fence) then
    redis.call('SET', fences, fence)
  end
end

-- A Redis that has no memory left refuses a script's first write, unless it is one that can only
-- free some; behind such a one it lets the others pass. So every script but that of `append` begins
-- with this, and a full Redis still lets events go.
local function make_way()
  redis.call('ZREMRANGEBYRANK', recent, 0, -RECENT_MAX - 1)
end

-- What each script that changes something begins with; `finish` is its end. A key of another type
-- ends the script in here, before it changed anything.
local function begin()
  redis.call('ZCARD', recent)
  local kept = redis.call('HMGET', sums, 'bytes', 'dead_bytes', 'dead_dropped', 'bodiless')
  local totals = {bodiless_now = 0, dropped_now = 0}
  totals.bytes = tonumber(kept[1]) or 0
  totals.dead_bytes = tonumber(kept[2]) or 0
  totals.dead_dropped = tonumber(kept[3]) or 0
  totals.bodiless = tonumber(kept[4]) or 0
  redis.call('HLEN', bodies)
  redis.call('HLEN', dead)
  totals.events = redis.call('ZCARD', queue)
  totals.letters = redis.call('ZCARD', deaths)
  newest_fence()
  return totals
end

local function finish(totals)
  -- What was lost with a key that somebody deleted is not counted for ever.
  local bytes = redis.call('EXISTS', bodies) == 1 and math.max(0, totals.bytes) or 0
  local dead_bytes = redis.call('EXISTS', dead) == 1 and math.max(0, totals.dead_bytes) or 0
  redis.call(
    'HSET', sums, 'bytes', string.format('%.0f', bytes),
    'dead_bytes', string.format('%.0f', dead_bytes),
    'dead_dropped', string.format('%.0f', totals.dead_dropped),
    'bodiless', string.format('%.0f', totals.bodiless))
end

-- Puts an id at the end of a zset.
local function push(key, id)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', key, string.format('%.0f', (tonumber(last) or 0) + 1), id)
end

local function is_finite(text)
  local value = text and tonumber(text)
  return value and value == value and math.abs(value) < math.huge
end

-- Returns the time and the event of an entry; no time when it is not one.
local function parse_entry(entry)
  local space = string.find(entry, ' ', 1, true)
  local at = space and string.sub(entry, 1, space - 1)
  if not is_finite(at) then
    return nil, entry
  end
  return at, string.sub(entry, space + 1)
end

-- Returns when a letter died, and its event; no time when it is no letter.
local function parse_letter(letter)
  local at, size, begin = string.match(letter, '^(%S+) %S+ [01] (%d+) ()')
  if not is_finite(at) or #letter < begin - 1 + tonumber(size) then
    return nil, letter
  end
  return tonumber(at), string.sub(letter, begin + tonumber(size))
end

local function add_event(totals, id, entry)
  totals.bytes = totals.bytes + #entry - redis.call('HSTRLEN', bodies, id)
  redis.call('HSET', bodies, id, entry)
  push(queue, id)
end

local function remove_event(totals, id)
  totals.bytes = totals.bytes - redis.call('HSTRLEN', bodies, id)
  redis.call('HDEL', bodies, id)
  redis.call('ZREM', queue, id)
end

local function remove_letter(totals, id)
  local letter = redis.call('HGET', dead, id)
  if letter then
    local _, text = parse_letter(letter)
    totals.dead_bytes = totals.dead_bytes - #text
    redis.call('HDEL', dead, id)
  end
  redis.call('ZREM', deaths, id)
end

-- Forgets an id that has no body; there is nothing that could be kept of it.
local function remove_bodiless(totals, key, id)
  redis.call('ZREM', key, id)
  totals.bodiless = totals.bodiless + 1
  totals.bodiless_now = totals.bodiless_now + 1
end

-- Puts a letter behind the others.
local function add_letter(totals, id, died, enqueued, is_event, reason, text)
  remove_letter(totals, id)
  local letter = table.concat({died, enqueued, is_event, #reason, reason}, ' ') .. text
  redis.call('HSET', dead, id, letter)
  push(deaths, id)
  totals.dead_bytes = totals.dead_bytes + #text
end

-- Makes a letter of an entry of the queue; first there, then away from here.
local function bury(totals, id, entry, died, is_event, reason)
  local at, text = parse_entry(entry)
  if at then
    add_letter(totals, id, died, at, is_event, reason, text)
  else
    add_letter(totals, id, died, '-', '0', 'unreadable', text)
  end
  remove_event(totals, id)
end

-- Drops the oldest letters beyond the bounds. What is no letter cannot tell its age and goes to the
-- end as one that is unreadable, so that it hinders nobody.
local function trim(totals, died, bounds)
  local letters = redis.call('ZCARD', deaths)
  for _ = 1, DROPS_MAX do
    local id = redis.call('ZRANGE', deaths, 0, 0)[1]
    if not id then
      return
    end
    local letter = redis.call('HGET', dead, id)
    if not letter then
      remove_bodiless(totals, deaths, id)
      letters = letters - 1
    else
      local at = parse_letter(letter)
      if not at then
        add_letter(totals, id, died, '-', '0', 'unreadable', letter)
      elseif letters > bounds.count or totals.dead_bytes > bounds.bytes or at < bounds.died then
        remove_letter(totals, id)
        letters = letters - 1
        totals.dead_dropped = totals.dead_dropped + 1
        totals.dropped_now = totals.dropped_now + 1
      else
        return
      end
    end
  end
end
