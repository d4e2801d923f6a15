-- Sets a letter aside whose content cannot be read. ARGV: prefix, id. Returns whether it was there.
if not redis.call('ZSCORE', order, ARGV[2]) then
  return 0
end
set_aside(ARGV[2])
return 1
