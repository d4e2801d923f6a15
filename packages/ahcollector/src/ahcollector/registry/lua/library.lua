-- What the registry's scripts share. It stands before each of them; ARGV[1] is the prefix of keys.
--
-- An agent is read into a table of strings with the fields below; what is absent is ''. Versions
-- are decimal strings of up to 19 digits: a number of Lua holds only 15 of them exactly.

local FIELDS = {'company_id', 'server_id', 'state', 'ver', 'newest', 'token', 'exp', 'prev',
  'prev_exp', 'revoked', 'tokens'}

local function key(...)
  return ARGV[1] .. 'reg:' .. table.concat({...}, ':')
end

-- Ids may hold colons, so a key of two of them would be ambiguous: 'a:b' and 'c', 'a' and 'b:c'.
local function server_key(company, server)
  local function escaped(id)
    return (string.gsub(string.gsub(id, '%%', '%%25'), ':', '%%3A'))
  end
  return key('srv', escaped(company), escaped(server))
end

local function newer(a, b)
  if #a ~= #b then
    return #a > #b
  end
  return a > b
end

local function number(text)
  if text and string.match(text, '^%d+$') then
    return text
  end
  return '0'
end

local function flat(agent)
  local values = {}
  for position, field in ipairs(FIELDS) do
    values[position] = agent[field]
  end
  return values
end

-- Returns nil when the agent is unknown.
local function read(id)
  local values = redis.call('HMGET', key('agent', id), unpack(FIELDS))
  local agent, there = {}, false
  for position, field in ipairs(FIELDS) do
    there = there or values[position]
    agent[field] = values[position] or ''
  end
  if not there then
    return nil
  end
  agent.ver, agent.newest = number(agent.ver), number(agent.newest)
  return agent
end

local function owner_of(hash)
  return redis.call('HGET', key('tok', hash), 'agent_id')
end

local function point(hash, id, agent, state, exp, ver)
  redis.call('DEL', key('tok', hash))
  redis.call('HSET', key('tok', hash), 'agent_id', id, 'company_id', agent.company_id,
    'server_id', agent.server_id, 'state', state, 'exp', exp, 'ver', ver)
end

local function disown(id, hash)
  local kept = {}
  local tokens = redis.call('HGET', key('agent', id), 'tokens') or ''
  for one in string.gmatch(tokens, '%S+') do
    if one ~= hash then
      kept[#kept + 1] = one
    end
  end
  redis.call('HSET', key('agent', id), 'tokens', table.concat(kept, ' '))
end

-- Active agents of each company, so that nobody has to count them.
local function recount(company)
  local active = redis.call('SCARD', key('act', company))
  if active == 0 then
    redis.call('HDEL', key('cos'), company)
  else
    redis.call('HSET', key('cos'), company, active)
  end
end

-- Takes an agent out of every list; `recounted` gets the company whose count is to be made anew.
local function unindex(id, agent, recounted)
  redis.call('SREM', server_key(agent.company_id, agent.server_id), id)
  redis.call('SREM', key('co', agent.company_id), id)
  if redis.call('SREM', key('act', agent.company_id), id) == 1 then
    recounted[agent.company_id] = true
  end
  redis.call('SREM', key('all'), id)
  if agent.state ~= 'active' then
    redis.call('SREM', key('pend'), id)
    redis.call('ZREM', key('rev'), id)
  end
end

local function index(id, agent, recounted)
  redis.call('SADD', server_key(agent.company_id, agent.server_id), id)
  redis.call('SADD', key('co', agent.company_id), id)
  redis.call('SADD', key('all'), id)
  if agent.state == 'revoked' then
    redis.call('ZADD', key('rev'), agent.revoked, id)
  elseif agent.state == 'pending' then
    redis.call('SADD', key('pend'), id)
  elseif redis.call('SADD', key('act', agent.company_id), id) == 1 then
    recounted[agent.company_id] = true
  end
end

-- Tells every node which agents and hashes to forget; see RedisRegistry.changes.
local function tell(words)
  if #words > 0 then
    redis.call('PUBLISH', key('changes'), table.concat(words, ' '))
  end
end

-- The tokens of a record as {hash, exp}; a previous one without an end has ended at `long_ago`.
local function tokens_of(agent, long_ago)
  local tokens = {}
  if agent.prev ~= '' and agent.prev ~= agent.token then
    tokens[1] = {agent.prev, agent.prev_exp ~= '' and agent.prev_exp or long_ago}
  end
  if agent.token ~= '' then
    tokens[#tokens + 1] = {agent.token, agent.exp}
  end
  return tokens
end

-- Makes `agent` what is known of `id`; `known` is what was, `fresh` its tokens as {hash, exp}.
local function write(id, known, agent, fresh)
  local revoked = agent.state == 'revoked'
  local named, owned, words = {}, {}, {'a' .. id}
  for _, token in ipairs(fresh) do
    named[token[1]] = true
    words[#words + 1] = 't' .. token[1]
  end
  local recounted = {}
  if known then
    if known.company_id ~= agent.company_id or known.server_id ~= agent.server_id
      or known.state ~= agent.state then
      unindex(id, known, recounted)
    end
    for hash in string.gmatch(known.tokens, '%S+') do
      if not named[hash] and owner_of(hash) == id then
        if revoked then
          point(hash, id, agent, 'revoked', '', agent.newest)
          owned[#owned + 1] = hash
        else
          redis.call('DEL', key('tok', hash))
        end
      end
    end
  end
  for _, token in ipairs(fresh) do
    local owner = owner_of(token[1])
    if not (revoked and owner and owner ~= id) then
      if owner and owner ~= id then
        disown(owner, token[1])
      end
      point(token[1], id, agent, agent.state, token[2], agent.ver)
      owned[#owned + 1] = token[1]
    end
  end
  agent.tokens = table.concat(owned, ' ')
  local changed = not known
  local pairs_of = {}
  for _, field in ipairs(FIELDS) do
    changed = changed or known[field] ~= agent[field]
    pairs_of[#pairs_of + 1] = field
    pairs_of[#pairs_of + 1] = agent[field]
  end
  redis.call('HSET', key('agent', id), unpack(pairs_of))
  index(id, agent, recounted)
  for company in pairs(recounted) do
    recount(company)
  end
  if changed then
    tell(words)
  end
end

-- Forgets an agent and returns what was known of it, or nil; adds to `words` whom to tell of, and
-- to `recounted` the company whose count the caller makes anew.
local function forget(id, words, recounted)
  words[#words + 1] = 'a' .. id
  local known = read(id)
  if not known then
    redis.call('SREM', key('all'), id)
    redis.call('SREM', key('pend'), id)
    redis.call('ZREM', key('rev'), id)
    return nil
  end
  unindex(id, known, recounted)
  for hash in string.gmatch(known.tokens, '%S+') do
    if owner_of(hash) == id then
      redis.call('DEL', key('tok', hash))
    end
  end
  redis.call('DEL', key('agent', id))
  return known
end

-- What the scripts that forget end with.
local function forgotten(words, recounted)
  for company in pairs(recounted) do
    recount(company)
  end
  tell(words)
end

