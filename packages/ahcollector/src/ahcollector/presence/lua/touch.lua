-- Note contacts. ARGV: the contacts as JSON, each [agent, company, server, now, interval or "",
-- event id or "", seconds that it was told to wait or "", and of the company's rule how firm it is,
-- interval or "", down_min or "", as in `ensure`]; down_min; the usual interval; for how many
-- seconds a removed id is quiet. Returns how many contacts came too late, and then the places (from
-- 0) of contacts whose agent is down and which brought no event id; if there are any, nothing at all
-- was noted.
--
-- A contact that was let in before its agent was removed, and comes just after it, must not begin a
-- watch that nobody ends. A removal further ahead than that was dated by a clock that stepped back,
-- and binds nobody.
--
-- Few agents change more than when they were heard, so all sorted sets are written at the end, one
-- command each: a contact costs one read and one write of its own.

local contacts = cjson.decode(ARGV[1])
local down_min = tonumber(ARGV[2])
local usual = ARGV[3]
local quiet = tonumber(ARGV[4])
local late = 0
local waiting = {0}
local due, up, fresh = {}, {}, {}
local up_by_company = {}

local failure

-- What a damaged key refuses keeps nothing else from being written; it is told at the end.
local function try(what, ...)
  local done, why = pcall(what, ...)
  if not done then
    failure = failure or why
  end
end

local function flush()
  if #due == 0 then
    return
  end
  try(call, 'ZADD', P .. 'due', unpack(due))
  try(call, 'ZADD', P .. 'up', unpack(up))
  if #fresh > 0 then
    local last = call('HINCRBY', P .. 'n', 'unrep', #fresh)
    local members = {}
    for i = 1, #fresh do
      members[2 * i - 1] = last - #fresh + i
      members[2 * i] = fresh[i]
    end
    try(call, 'ZADD', P .. 'unrep', 'NX', unpack(members))
  end
  for co, members in pairs(up_by_company) do
    try(call, 'ZADD', P .. 'up:' .. co, unpack(members))
  end
  due, up, fresh, up_by_company = {}, {}, {}, {}
end

local function is_late(s, now)
  if s.known or not s.removed then
    return false
  end
  local age = tonumber(now) - tonumber(s.removed)
  return -quiet < age and age < quiet
end

local function note(s, now, waits)
  local instant = tonumber(now)
  local before = s.seen
  local newer = not before or instant > tonumber(before)
  local silent = threshold(s, down_min) + (tonumber(waits) or 0)
  s.due = math.max(ms(instant + silent), s.grace)
  local due_text = int(s.due)
  local key = P .. 'a:' .. s.id
  if newer then
    s.seen = now
    fresh[#fresh + 1] = s.id
    call('HSET', key, 'due', due_text, 'seen', now)
  else
    call('HSET', key, 'due', due_text)
  end
  if s.pardoned then
    call('HSET', key, 'grace', int(s.grace), 'n', s.n)
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
if #waiting > 1 then
  return waiting
end

local function take(id, co, srv, now, interval, event_id, waits, firm, ruled, rule_min)
  local s = states[id]
  local is_new = not s.known
  if is_late(s, now) then
    late = late + 1
    return
  end
  if not s.known then
    create(s, co, srv, usual)
  elseif s.co ~= co or s.srv ~= srv then
    -- What was gathered for the company it leaves must be written before it leaves.
    flush()
    settle(s, co, srv)
  end
  follow(s, firm, ruled, rule_min, usual, is_new)
  pace(s, interval, '1')
  local before = note(s, now, waits)
  if s.down then
    decide(s, 'up', now, event_id, before, '')
  end
end

for _, contact in ipairs(contacts) do
  try(take, unpack(contact))
end
flush()
if failure then
  error(failure)
end
return {late}
