-- ARGV: prefix, instant, how many at most. Forgets agents revoked before it; returns how many.
local words, recounted = {}, {}
local old = redis.call('ZRANGEBYSCORE', key('rev'), '-inf', '(' .. ARGV[2], 'LIMIT', 0, ARGV[3])
for _, id in ipairs(old) do
  forget(id, words, recounted)
end
forgotten(words, recounted)
return #old
