-- ARGV: prefix. Puts a cursor that cannot be read in the place of the one that was put there before.
if redis.call('EXISTS', key('cursor')) == 1 then
  redis.call('RENAME', key('cursor'), key('cursor', 'damaged'))
end
