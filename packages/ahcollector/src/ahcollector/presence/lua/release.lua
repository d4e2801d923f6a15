-- Give a lease's contacts back. ARGV: lease id.

local held = redis.call('HGET', P .. 'unrep:lease', ARGV[1])
if not held then
  return 0
end
redis.call('HDEL', P .. 'unrep:lease', ARGV[1])
give_back(cjson.decode(held).agents)
return 1
