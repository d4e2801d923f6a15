-- Puts letters back at the end of the queue, as far as there is room.
-- ARGV: prefix, when, events at most, bytes at most, ids.
-- Returns how many went back, whether there was no room for the next, how many events there are
-- and their bytes.
make_way()
local totals = begin()
local replayed, full = 0, 0
for at = 5, #ARGV do
  local id = ARGV[at]
  local letter = redis.call('ZSCORE', deaths, id) and redis.call('HGET', dead, id)
  if letter then
    local _, text = parse_letter(letter)
    local entry = ARGV[2] .. ' ' .. text
    if totals.events + 1 > tonumber(ARGV[3]) or totals.bytes + #entry > tonumber(ARGV[4]) then
      full = 1
      break
    end
    add_event(totals, id, entry)
    totals.events = totals.events + 1
    remove_letter(totals, id)
    replayed = replayed + 1
  end
end
if replayed > 0 then
  finish(totals)
end
return {replayed, full, totals.events, totals.bytes}
