-- Note contacts. ARGV: the contacts as JSON, each [agent, company, server, now, interval or "",
-- event id or "", seconds that it was told to wait or ""]; down_min; the usual interval. Returns the places (from 0) of contacts whose agent
-- is down and which brought no event id; if there are any, nothing at all was noted.
--
-- Few agents change more than when they were heard, so all sorted sets are written at the end, one
-- command each: a contact costs one read and one write of its own.

local contacts = cjson.decode(ARGV[1])
local down_min = tonumber(ARGV[2])
local usual = ARGV[3]
local waiting = {}
local due, up, fresh = {}, {}, {}
local up_by_company = {}

local function flush()
  if #due == 0 then
    return
  end
  redis.call('ZADD', P .. 'due', unpack(due))
  redis.call('ZADD', P .. 'up', unpack(up))
  for co, members in pairs(up_by_company) do
    redis.call('ZADD', P .. 'up:' .. co, unpack(members))
  end
  if #fresh > 0 then
    local last = redis.call('HINCRBY', P .. 'n', 'unrep', #fresh)
    local members = {}
    for i = 1, #fresh do
      members[2 * i - 1] = last - #fresh + i
      members[2 * i] = fresh[i]
    end
    redis.call('ZADD', P .. 'unrep', 'NX', unpack(members))
  end
  due, up, fresh, up_by_company = {}, {}, {}, {}
end

local function note(s, now, waits)
  local instant = tonumber(now)
  local before = s.seen
  local newer = not before or instant > tonumber(before)
  local silent = threshold(s.interval, down_min) + (tonumber(waits) or 0)
  s.due = math.max(ms(instant + silent), s.grace)
  local due_text = int(s.due)
  local key = P .. 'a:' .. s.id
  if newer then
    s.seen = now
    fresh[#fresh + 1] = s.id
    redis.call('HSET', key, 'due', due_text, 'seen', now)
  else
    redis.call('HSET', key, 'due', due_text)
  end
  if s.pardoned then
    redis.call('HSET', key, 'grace', int(s.grace), 'n', s.n)
    s.pardoned = false
  end
  local seen_text = seen_ms(s)
  due[#due + 1] = due_text
  due[#due + 1] = s.id
  up[#up + 1] = seen_text
  up[#up + 1] = s.id
  local members = up_by_company[s.co]
  if not members then
    members = {}
    up_by_company[s.co] = members
  end
  members[#members + 1] = seen_text
  members[#members + 1] = s.id
  return before
end

local states = {}
for i, contact in ipairs(contacts) do
  local id = contact[1]
  local s = states[id] or read(id)
  states[id] = s
  if s.down and contact[6] == '' then
    waiting[#waiting + 1] = i - 1
  end
end
if #waiting > 0 then
  return waiting
end

for _, contact in ipairs(contacts) do
  local id, co, srv, now, interval, event_id, waits = unpack(contact)
  local s = states[id]
  if not s.known then
    create(s, co, srv, usual)
  elseif s.co ~= co or s.srv ~= srv then
    -- What was gathered for the company it leaves must be written before it leaves.
    flush()
    settle(s, co, srv)
  end
  pace(s, interval, '1')
  local before = note(s, now, waits)
  if s.down then
    decide(s, 'up', now, event_id, before, '')
  end
end
flush()
return waiting
