-- Begin a grace. ARGV: now, ended_at, blind seconds (bounded), their bound, down_min. Returns 0, and
-- does nothing, while the grace before is still walking over the agents.

if call('HGET', P .. 'grace', 'walk') == '1' then
  return 0
end
call('HINCRBY', P .. 'grace', 'n', 1)
call('HSET', P .. 'grace', 'now', ARGV[1], 'ended', ARGV[2], 'blind', ARGV[3],
  'max', ARGV[4], 'down_min', ARGV[5], 'walk', '1', 'at', '')
return 1
