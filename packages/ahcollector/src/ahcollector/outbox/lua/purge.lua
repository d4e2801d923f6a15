-- Deletes letters: all, or those named. ARGV: prefix, ids. Returns how many there were.
make_way()
local totals = begin()
local purged = 0
if #ARGV == 1 then
  purged = totals.letters
  redis.call('UNLINK', deaths, dead)
  totals.dead_bytes = 0
else
  for at = 2, #ARGV do
    if redis.call('ZSCORE', deaths, ARGV[at]) then
      remove_letter(totals, ARGV[at])
      purged = purged + 1
    end
  end
end
finish(totals)
return purged
