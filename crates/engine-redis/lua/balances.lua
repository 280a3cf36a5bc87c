-- balances: accounts as they stand. KEYS: subjects. Arguments: (key, account) pairs. Writes nothing.

local pairs_ = ARGS[1]
for _, pair in ipairs(pairs_) do want(KEYS[pair[1]], pair[2]) end
fetch()
local rows = {}
for index, pair in ipairs(pairs_) do
  local account = want(KEYS[pair[1]], pair[2])
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
      row[MEASURE], row[KIND], row[P1] or 0, row[P2] or 0, row[P3] or 0, start, posted, held, reset, row[LIVE],
      row[SHADOW_DENIED], row[SHADOW_DEMAND], row[VERSION],
    }
    if row[KIND] == QUOTA then rows[index][3], rows[index][4], rows[index][5] = 0, 0, 0 end
  end
end
return answer(rows)
