-- balances: accounts as they stand. Arguments: accounts. Writes nothing.

local names = from_msgpack(ARGV[1])
for _, name in ipairs(names) do want(name) end
fetch()
local rows = {}
for index, name in ipairs(names) do
  local account = want(name)
  local row = account.row
  if not row then
    rows[index] = {}
  else
    local at = row[KIND] == QUOTA and newest_period(row)
    local current = at and until_(row[at + END_]) > 0
    local start = current and row[at] or 0
    local posted, held, reset = 0, 0, 0
    if row[KIND] ~= QUOTA or current then
      posted, held = figures(account, start)
      reset = reset_of(account, start)
    end
    rows[index] = {
      row[MEASURE], row[KIND], row[P1], row[P2], row[P3], start, posted, held, reset, row[LIVE],
      row[SHADOW_DENIED], row[SHADOW_DEMAND], row[VERSION],
    }
  end
end
return answer(rows)
