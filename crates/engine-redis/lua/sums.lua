-- sums: what was posted to periods of quotas is so much, by the journal. KEYS: subjects.
-- Arguments: epoch, rows of key, account, measure, start, end, amount. Answers 1, or 0 if no such rebuild is under way.

local epoch, rows = ARGS[1], ARGS[2]
if not meta[5] or tonumber(meta[1] or 0) ~= epoch then return answer(0) end
for _, row in ipairs(rows) do want(KEYS[row[1]], row[2]) end
fetch()
for index, row in ipairs(rows) do
  local known = want(KEYS[row[1]], row[2]).row
  if known and not is_shape(known, row[3], QUOTA) then refused('shape', index - 1) end
end
probe()
for _, row in ipairs(rows) do
  local account = want(KEYS[row[1]], row[2])
  opened[account.key] = opened[account.key] or not account.row
  account.row = account.row or new_row(row[3], QUOTA)
  open_period(account.row, row[4], row[5])
  local at = period_of(account.row, row[4])
  account.row[at + POSTED], account.row[USED] = row[6], steady
  account.row[VERSION], account.dirty = account.row[VERSION] + 1, true
end
tick()
store()
return answer(1)
