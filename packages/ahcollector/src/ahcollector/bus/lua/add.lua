-- Appends entries. ARGV: prefix, then shard and bytes of each.
for at = 2, #ARGV, 2 do
  redis.call('XADD', stream(ARGV[at]), '*', 'b', ARGV[at + 1])
end
return 1
