-- Hand out intents, and decide who fell silent. ARGV: limit, holder, lease's now in ms, lease in ms,
-- now (or "": decide nothing), then the event ids that downs may take: no more are decided.
-- Returns {walking, due, agent, intents as JSON, agent, …}: `walking` is 1 while a grace is not yet
-- applied to all, and then nothing is decided; `due` counts those who could still go down.
--
-- An agent's intents are leased together to the holder that gets them, so that two processes do not
-- work on the same ones, nor on two of one agent. A lease that ends much further ahead than any can
-- (its holder's clock may be a little ahead) was written under another clock, and binds nobody.

local limit, holder, lease_now, lease = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now = ARGV[5]
local lease_text = int(lease_now + lease) .. ' ' .. holder
local result = {0, 0}
local taken = 0

local function is_foreign(id)
  local text = call('HGET', P .. 'tx:lease', id)
  if not text then
    return false
  end
  local until_, who = string.match(text, '^(%S+) (.*)$')
  local left = tonumber(until_) - lease_now
  return who ~= holder and left > 0 and left <= 2 * lease
end

local function hand_out(id, intents)
  call('HSET', P .. 'tx:lease', id, lease_text)
  result[#result + 1] = id
  result[#result + 1] = intents
end

local from = 0
while taken < limit do
  local ids = call('ZRANGE', P .. 'tx:order', from, from + limit - 1)
  for _, id in ipairs(ids) do
    if taken < limit and not is_foreign(id) then
      local intents = call('HGET', P .. 'tx', id)
      taken = taken + #decoded(intents, P .. 'tx ' .. id)
      hand_out(id, intents)
    end
  end
  if #ids < limit then
    break
  end
  from = from + limit
end

if now == '' then
  return result
end
if call('HGET', P .. 'grace', 'walk') == '1' then
  result[1] = 1
  return result
end
local late = '(' .. int(ms(tonumber(now)))
local room = math.min(limit - taken, #ARGV - 5)
if room > 0 then
  local ids = call('ZRANGEBYSCORE', P .. 'due', '-inf', late, 'LIMIT', 0, room)
  for i, id in ipairs(ids) do
    local s = read(id)
    local intent = decide(s, 'down', now, ARGV[5 + i], s.seen, s.seen and '' or 'never_reported')
    hand_out(id, '[' .. intent .. ']')
  end
end
result[2] = call('ZCOUNT', P .. 'due', '-inf', late)
return result
