-- sums: what was posted to periods of quotas is so much, by the journal.
-- Arguments: epoch, rows of account, measure, start, end, amount. Answers 1, or 0 if no such rebuild is under way.

local asked, rows = unpack(from_msgpack(ARGV[1]), 1, 2)
if closed == 0 or epoch ~= asked then return answer(0) end
for _, row in ipairs(rows) do want(row[1]) end
fetch()
for index, row in ipairs(rows) do
  local known = want(row[1]).row
  if known and not is_shape(known, row[2], QUOTA) then refused('shape', index - 1) end
end
for _, row in ipairs(rows) do
  local account = want(row[1])
  account.row = account.row or new_row(row[2], QUOTA)
  local at = with_period(account.row, row[3], row[4])
  account.row[at + POSTED], account.row[USED] = row[5], steady
  account.row[VERSION], account.dirty = account.row[VERSION] + 1, true
end
tick()
store()
return answer(1)
