-- One step of the drift check (L10): are some accounts the sums of their live holds?
-- KEYS: reservations. Arguments: accounts. Answers what differs, and the accounts of which not every live reservation was
-- declared: each knows how many it has. One that the due set names and that is gone altogether is a finding, not missing.

local sums, counts, lost, found, again = {}, {}, 0, {}, {}
for index = 3, #KEYS do
  local stored = call('GET', KEYS[index])
  local row = stored and record_of(stored)
  if not row then
    lost = lost + 1
  elseif row[R_STATE] == LIVE_NOW then
    for _, leg in ipairs(row[R_LEGS]) do
      local name = leg[H_ACCOUNT]
      local id = name .. whole(leg[H_KIND] == QUOTA and leg[H_PLACE] or 0)
      sums[id], counts[name] = (sums[id] or 0) + leg[H_HELD], (counts[name] or 0) + 1
    end
  end
end
local function compare(name, place, held, version)
  local sum = sums[name .. whole(place)] or 0
  if sum ~= held then found[#found + 1] = { name, place, held, sum, version } end
end
for _, name in ipairs(from_msgpack(ARGV[1])) do want(name) end
fetch()
for _, account in ipairs(wanted) do
  local row, name = account.row, account.name
  if not row or row[KIND] == FORECAST then
    -- It has no holds.
  elseif (counts[name] or 0) + lost < row[LIVE] then
    again[#again + 1] = name
  elseif row[KIND] == QUOTA then
    for at = PERIODS, #row - 3, 4 do compare(name, row[at], row[at + HELD_], row[VERSION]) end
  else
    compare(name, 0, row[HELD], row[VERSION])
  end
end
return answer({ found, again })
