-- prune: forget what no rule needs any more, of some subjects and of some estimators.
-- KEYS: subjects. Arguments: estimators. Rates, forecasts and slots that equal fresh ones go after ten minutes without use,
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

for index = 6, #KEYS do
  local key = KEYS[index]
  local fields, dead = call('HKEYS', key), {}
  for _, field in ipairs(fields) do
    if #field == 16 then want(key, field) end
  end
  if by_key[key] then
    fetch()
    for _, account in ipairs(by_key[key]) do
      local row = account.row
      if is_idle(account) then
        dead[account.name], gone = true, gone + 1
      elseif row[KIND] == QUOTA and #row > PERIODS + 3 and over(row, PERIODS) then
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
  end
  local dels = {}
  for _, field in ipairs(fields) do
    if dead[string.sub(field, 1, 16)] then dels[#dels + 1] = field end
  end
  store()
  if #dels > 0 then call('HDEL', key, unpack(dels)) end
  if #dels == #fields then call('SREM', SUBJECTS, subject_of(key)) end
  by_key[key] = nil
end

local old = {}
for _, id in ipairs(ARGS[1]) do
  local row = estimate_of(id)
  if row and row[E_USED] + FORGET <= steady then old[#old + 1] = id end
end
if #old > 0 then call('HDEL', ESTIMATES, unpack(old)) end
if gone + trimmed + #old > 0 or now < seen then tick() end
return answer(gone + #old)
