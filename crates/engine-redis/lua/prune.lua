-- prune: forget what no rule needs any more, of some accounts and of some estimators.
-- Arguments: accounts, estimators. Rates, forecasts and slots that equal fresh ones go after ten minutes without use,
-- quotas a week after their newest period, estimators a week after their last sample. Tombstones have a time to live.

const IDLE, FORGET = 600 * SECOND, 604800 * SECOND

local gone, trimmed = 0, 0

local function is_idle(account)
  local row = account.row
  local kept = FORGET
  if row[KIND] ~= QUOTA and row[SHADOW_DENIED] == 0 and row[SHADOW_DEMAND] == 0 and row[DENIED_BUCKET] == 0 then kept = IDLE end
  if row[LIVE] > 0 or row[USED] + kept > steady then return false end
  if row[KIND] == RATE then return row[HELD] == 0 and ring_sums(account) == 0 end
  if row[KIND] == FORECAST then return track_newest(account) == nil end
  if row[KIND] == CONCURRENCY then return row[HELD] == 0 end
  for at = PERIODS, #row - 3, 4 do
    local ends = row[at + END_]
    local past = ends < NEVER_SECOND and ends * SECOND + FORGET <= now
    if row[at + HELD_] ~= 0 or not past and row[at + POSTED] ~= 0 then return false end
  end
  return true
end

local accounts_asked, estimators = unpack(from_msgpack(ARGV[1]), 1, 2)
for _, name in ipairs(accounts_asked) do want(name) end
fetch()
local dead = {}
for _, account in ipairs(wanted) do
  local row, name = account.row, account.name
  if row and is_idle(account) then
    gone = gone + 1
    for _, field in ipairs({ name, name .. 'b', name .. 's', name .. 'g' }) do dead[#dead + 1] = field end
  elseif row and row[KIND] == QUOTA and #row > PERIODS + 3 and over(row, PERIODS) then
    local at = PERIODS
    while at < #row - 3 do
      if over(row, at) then
        for _ = 1, 4 do table.remove(row, at) end
      else
        at = at + 4
      end
    end
    account.dirty, trimmed = true, trimmed + 1
  end
end
store()
if #dead > 0 then call('HDEL', BOOK, unpack(dead)) end

local old = {}
for _, id in ipairs(estimators) do
  local row = estimate_of(id)
  if row and row[E_USED] + FORGET <= steady then old[#old + 1] = 'e' .. id end
end
if #old > 0 then call('HDEL', BOOK, unpack(old)) end
if gone + trimmed + #old > 0 or now < seen then tick() end
return answer(gone + #old)
