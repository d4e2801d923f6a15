-- Give a lease's contacts back. ARGV: lease id.

local held = call('HGET', P .. 'unrep:lease', ARGV[1])
if not held then
  return 0
end
call('HDEL', P .. 'unrep:lease', ARGV[1])
give_back(decoded(held, P .. 'unrep:lease ' .. ARGV[1]).agents)
return 1
