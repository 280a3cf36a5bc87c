-- holds: one step of a drift check of accounts that more reservations hold something of than one script is told (L10).
-- KEYS: reservations. Arguments: accounts. Answers the steady time; of each reservation when it was admitted, when it ended
-- (-1: it is live) and, while it lives, account, place and amount of what it holds of these, nothing of one that is gone;
-- of each account that has holds its version, how many reservations hold something, and held by place.

local index_of = {}
for index, name in ipairs(from_msgpack(ARGV[1])) do
  want(name)
  index_of[name] = index - 1
end
fetch()
local reservations, rows = {}, {}
for at = 3, #KEYS do
  local stored = call('GET', KEYS[at])
  local row, seen_ = stored and record_of(stored), {}
  if row and row[R_STATE] == LIVE_NOW then
    seen_[1], seen_[2] = row[R_ADMITTED], -1
    for _, leg in ipairs(row[R_LEGS]) do
      local index, last = index_of[leg[H_ACCOUNT]], #seen_
      if index then
        seen_[last + 1], seen_[last + 2] = index, leg[H_KIND] == QUOTA and leg[H_PLACE] or 0
        seen_[last + 3] = leg[H_HELD]
      end
    end
  elseif row then
    seen_[1], seen_[2] = row[R_ADMITTED], row[T_ENDED]
  end
  reservations[at - 2] = seen_
end
for index, account in ipairs(wanted) do
  local row, told = account.row, {}
  if row and row[KIND] ~= FORECAST then
    told[1], told[2] = row[VERSION], row[LIVE]
    if row[KIND] == QUOTA then
      for at = PERIODS, #row - 3, 4 do
        told[#told + 1], told[#told + 2] = row[at], row[at + HELD_]
      end
    else
      told[3], told[4] = 0, row[HELD]
    end
  end
  rows[index] = told
end
return answer({ steady, reservations, rows })
