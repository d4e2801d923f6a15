-- Replace the value of KEYS[1], if it still is ARGV[1] ("": there is none), with ARGV[2].

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
