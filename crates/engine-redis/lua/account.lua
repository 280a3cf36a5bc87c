-- Accounts: held and posted of one name, by shape. One field of the book each, by subject and name.
--
-- A field is a string of fixed numbers (positions below): four bytes, then eight bytes a number; what shadow limits and
-- denials count comes last, and only if there is any. A rate's newest bucket
-- is in it; the older ones are one more field, `<account>b`, a number for each by bucket number modulo buckets, so a verb
-- touches it only when a bucket ends. It may be missing while nothing but the newest bucket holds an amount. The seconds
-- of a forecast account are one field, `<account>s`, in the same way; its gateways another, `<account>g`.

const RATE, FORECAST, QUOTA, CONCURRENCY = 1, 2, 3, 4
const REQUESTS, TOKENS, INPUT, OUTPUT, COST, IN_FLIGHT = 1, 2, 3, 4, 5, 6
const WHOLE, OLDEST, DECAY = 0, 1, 2

-- Of every account. Shape: buckets, width, weights of a rate; window, strict of a forecast.
const KIND, MEASURE, P1, P3, P2 = 1, 2, 3, 4, 5
const SHADOW_DENIED, SHADOW_DEMAND, DENIED_BUCKET = 6, 7, 8
const LIVE, VERSION, MEAN_HOLD, USED = 9, 10, 11, 12
-- But of quotas; a forecast's is 0.
const HELD = 13
-- Rate: number of the newest bucket, sum, the newest bucket's amount, the newest number with an amount, and the decayed
-- sum, which is stored only where it counts.
const NEWEST, SUM, HEAD, TOP, DECAYED = 14, 15, 16, 17, 18
-- Forecast: the last second written, the sums behind and ahead of it, the last second that may hold something.
const PAST, AHEAD, FAR = 15, 16, 17
-- Quota: all after the common part, four numbers for each period, oldest first.
const PERIODS, START_, END_, POSTED, HELD_ = 13, 0, 1, 2, 3
-- Bytes of the shape; numbers in front of the common ones, of those, and of what comes last.
const SHAPE_BYTES, SHAPED, COMMON, RARE = 12, 8, 4, 3

-- Defined in track.lua, once a forecast account is met.
local with_track
local kept, flow_of, post_second, track_add, track_advance, track_at, track_busy, track_fullest, track_newest, track_pack
local track_plan, track_reset, track_wait, is_new_batch, heard

local accounts, wanted = {}, {}

-- An account to be looked at; what is stored of it comes with `fetch`.
local function want(name)
  local account = accounts[name]
  if not account then
    account = { name = name }
    accounts[name], wanted[#wanted + 1] = account, account
  end
  return account
end

local function row_of(text)
  local kind, measure, p1, p3, p2 = from_packed('<BBBBd', #text > SHAPE_BYTES and text or rep('\0', SHAPE_BYTES))
  local row, list = { kind, measure, p1, p3, p2, 0, 0, 0 }, numbers(text, SHAPE_BYTES + 1, 'account')
  local own = #list - COMMON
  local plain = kind == RATE and (p3 == DECAY and 6 or 5) or kind == FORECAST and 5 or kind == CONCURRENCY and 1
    or kind == QUOTA and own - (own % 4 == RARE and RARE or 0)
  local fits = plain and plain >= 0 and (own == plain or own == plain + RARE) and (kind ~= QUOTA or plain % 4 == 0)
  if not fits or measure < REQUESTS or measure > IN_FLIGHT or p2 % 1 ~= 0 then damaged('account') end
  for index = 1, COMMON + plain do row[SHAPED + index] = list[index] end
  if own > plain then
    for index = 1, RARE do row[SHADOW_DENIED + index - 1] = list[COMMON + plain + index] end
  end
  if kind == RATE then row[DECAYED] = row[DECAYED] or 0 end
  return row
end

local function text_of(row)
  local last = #row
  if row[KIND] == RATE and row[P3] ~= DECAY then last = TOP end
  local text = pack('<BBBBd' .. rep('d', last - SHAPED), row[KIND], row[MEASURE], row[P1], row[P3], row[P2], unpack(row, LIVE, last))
  local denied, demand, bucket = row[SHADOW_DENIED], row[SHADOW_DEMAND], row[DENIED_BUCKET]
  if denied == 0 and demand == 0 and bucket == 0 then return text end
  return text .. pack('<ddd', denied, demand, bucket)
end

local fetched = 0

-- What is stored of fields, false of one that is not there. Nothing is written between the quick way's reading and this.
local read = {}
if named then
  for index = 3, #told do read[named[index - 2]] = told[index] end
end

local function fetch()
  local names = {}
  for index = fetched + 1, #wanted do
    local name = wanted[index].name
    if read[name] == nil then names[#names + 1] = name end
  end
  if #names > 0 then
    local found = call('HMGET', BOOK, unpack(names))
    for index, name in ipairs(names) do read[name] = found[index] end
  end
  for index = fetched + 1, #wanted do
    local account = wanted[index]
    local stored = read[account.name]
    if stored then
      account.row = row_of(stored)
      if account.row[KIND] == FORECAST then with_track() end
    end
  end
  fetched = #wanted
end

local function is_shape(row, measure, kind, p1, p2, p3)
  if row[MEASURE] ~= measure or row[KIND] ~= kind then return false end
  return kind == QUOTA or kind == CONCURRENCY or (row[P1] == p1 and row[P2] == p2 and row[P3] == p3)
end

local function new_row(measure, kind, p1, p2, p3)
  local row = { kind, measure, 0, 0, 0, 0, 0, 0, 0, 0, 0, steady }
  if kind == QUOTA then return row end
  row[HELD] = 0
  if kind == RATE then row[NEWEST], row[SUM], row[HEAD], row[TOP], row[DECAYED] = 0, 0, 0, 0, 0 end
  if kind == FORECAST then row[NEWEST], row[PAST], row[AHEAD], row[FAR] = 0, 0, 0, 0 end
  if kind ~= CONCURRENCY then row[P1], row[P2], row[P3] = p1, p2, p3 end
  return row
end

-- --- the buckets of a rate ---

-- The buckets but the newest one, by number modulo buckets; from one.
local function cells_of(account)
  if not account.cells then
    local row = account.row
    local stored = row[SUM] ~= row[HEAD] and call('HGET', BOOK, account.name .. 'b')
    if stored then
      account.cells = numbers(stored, 1, 'buckets')
      if #account.cells ~= row[P1] then damaged('buckets') end
    else
      if row[SUM] ~= row[HEAD] then damaged('buckets') end
      account.cells = {}
      for index = 1, row[P1] do account.cells[index] = 0 end
    end
  end
  return account.cells
end

-- What is stored of a bucket.
local function cell(account, number)
  local row = account.row
  if number == row[NEWEST] then return row[HEAD] end
  if number > row[NEWEST] or number <= row[NEWEST] - row[P1] then return 0 end
  return cells_of(account)[fmod(number, row[P1]) + 1]
end

local function set_cell(account, number, amount)
  local row = account.row
  if number == row[NEWEST] then
    row[HEAD] = amount
    return
  end
  cells_of(account)[fmod(number, row[P1]) + 1], account.turned = amount, true
end

-- How a ring stands now: bucket, buckets gone since the last write, time inside the bucket, whether it restarts.
local function ring_at(row)
  local width = row[P2]
  local bucket = div(now, width)
  if bucket >= row[NEWEST] then return bucket, min(bucket - row[NEWEST], row[P1]), fmod(now, width), false end
  if row[NEWEST] - bucket > 2 * row[P1] then return bucket, 0, fmod(now, width), true end
  return row[NEWEST], 0, 0, false
end

local function ring_sums(account)
  local row = account.row
  local _, gone, _, restart = ring_at(row)
  if restart then return row[SUM], row[SUM] * row[P1] end
  if gone >= row[P1] then return 0, 0 end
  local sum, decayed = row[SUM], row[DECAYED]
  for step = 1, gone do
    decayed = decayed - sum
    sum = sum - cell(account, row[NEWEST] - row[P1] + step)
  end
  return sum, decayed
end

-- Amount of the bucket so many buckets older than the current one.
local function ring_amount(account, age)
  local bucket, _, _, restart = ring_at(account.row)
  if restart then return age == 0 and account.row[SUM] or 0 end
  return cell(account, bucket - age)
end

local function ring_posted(account)
  local row = account.row
  local sum, decayed = ring_sums(account)
  if row[P3] == WHOLE then return sum end
  if row[P3] == DECAY then return div(decayed + row[P1] - 1, row[P1]) end
  local _, _, inside = ring_at(row)
  local oldest = ring_amount(account, row[P1] - 1)
  return sum - oldest + muldiv_up(oldest, row[P2] - min(inside, row[P2]), row[P2])
end

local function ring_reset(account, busy)
  local row = account.row
  local bucket, gone, _, restart = ring_at(row)
  local n = row[P1]
  if busy or restart and row[SUM] > 0 then return max((bucket + n) * row[P2] - now, 0) end
  if restart or row[SUM] == 0 or gone >= n or row[TOP] <= bucket - n then return 0 end
  return max((row[TOP] + n) * row[P2] - now, 0)
end

local function ring_advance(account)
  local row = account.row
  local bucket, gone, _, restart = ring_at(row)
  if bucket == row[NEWEST] then return end
  local n, old, head = row[P1], row[NEWEST], row[HEAD]
  if restart or gone >= n then
    local kept = restart and row[SUM] or 0
    -- What was there does not count any more; reading it could fail, and something may be written already.
    account.cells = {}
    for index = 1, n do account.cells[index] = 0 end
    row[SUM], row[HEAD], row[DECAYED], row[TOP] = kept, kept, kept * n, kept > 0 and bucket or 0
    alarm('ring_restarts', restart and kept > 0 and 1 or 0)
    row[NEWEST], account.turned = bucket, true
    return
  end
  local cells = cells_of(account)
  for step = 1, gone do
    local index = fmod(old + step, n) + 1
    row[DECAYED] = row[DECAYED] - row[SUM]
    row[SUM] = row[SUM] - cells[index]
    cells[index] = 0
  end
  row[NEWEST], row[HEAD] = bucket, 0
  cells[fmod(old, n) + 1], account.turned = head, true
end

-- Post to the newest bucket, never above 2^53 − 1.
local function ring_post(account, amount)
  local row = account.row
  local taken = min(amount, AMOUNT_MAX - row[SUM])
  if taken > 0 then
    row[HEAD], row[SUM], row[TOP] = row[HEAD] + taken, row[SUM] + taken, row[NEWEST]
    row[DECAYED] = row[DECAYED] + taken * row[P1]
  end
  alarm('saturated', taken < amount and 1 or 0)
end

-- Take out of a bucket, never below zero.
local function ring_take_back(account, number, amount)
  local row = account.row
  local age = row[NEWEST] - number
  local taken = 0
  if age >= 0 and age < row[P1] then
    local there = cell(account, number)
    taken = min(amount, there)
    set_cell(account, number, there - taken)
    row[SUM], row[DECAYED] = row[SUM] - taken, row[DECAYED] - taken * (row[P1] - age)
    while row[TOP] > row[NEWEST] - row[P1] and cell(account, row[TOP]) == 0 do row[TOP] = row[TOP] - 1 end
  end
  alarm('dropped_refunds', taken < amount and 1 or 0)
end

-- --- the periods of a quota ---

-- Position of the period that begins at `start`.
local function period_of(row, start)
  for at = #row - 3, PERIODS, -4 do
    if row[at] == start then return at end
  end
end

local function newest_period(row)
  return #row >= PERIODS + 3 and #row - 3 or nil
end

local function until_(second)
  if second >= NEVER_SECOND then return NEVER end
  return max(second * SECOND - now, 0)
end

local function over(row, at)
  local ends = row[at + END_]
  return row[at + HELD_] == 0 and ends < NEVER_SECOND and ends * SECOND + PERIOD_KEPT <= now
end

-- Where the period is that begins at `start`, made if need be.
local function with_period(row, start, ends)
  local found = period_of(row, start)
  if found then return found end
  local at = PERIODS
  while row[at] and row[at] < start do at = at + 4 end
  for offset, value in ipairs({ start, ends, 0, 0 }) do table.insert(row, at + offset - 1, value) end
  return at
end

-- Open a period, and drop a few that are over.
local function open_period(row, start, ends)
  with_period(row, start, ends)
  local left, at = 4, PERIODS
  while left > 0 and at < #row - 3 do
    if over(row, at) then
      for _ = 1, 4 do table.remove(row, at) end
      left = left - 1
    else
      at = at + 4
    end
  end
end

-- --- all shapes ---

-- Change what is held at a place.
local function hold(account, place, delta)
  local row = account.row
  row[VERSION] = row[VERSION] + 1
  if row[KIND] == QUOTA then
    local at = period_of(row, place)
    if at then row[at + HELD_] = row[at + HELD_] + delta else alarm('dropped_postings', 1) end
  elseif row[KIND] ~= FORECAST then
    row[HELD] = row[HELD] + delta
  end
end

local function held_of(row, place)
  if row[KIND] == QUOTA then
    local at = period_of(row, place)
    return at and row[at + HELD_] or 0
  end
  return row[KIND] == FORECAST and 0 or row[HELD]
end

-- Post an amount: positive to the current bucket or the named period, negative out of the one named. A forecast takes
-- both to the second named (`post_second`, where there are forecasts).
local function post(account, place, amount)
  local row = account.row
  if row[KIND] == RATE then
    ring_advance(account)
    if amount < 0 then ring_take_back(account, place, -amount) else ring_post(account, amount) end
  elseif row[KIND] == FORECAST then
    post_second(account, place, amount)
  elseif row[KIND] == QUOTA then
    local at = period_of(row, place)
    if not at then return alarm('dropped_postings', 1) end
    local sum = row[at + POSTED] + amount
    row[at + POSTED] = max(min(sum, AMOUNT_MAX), -AMOUNT_MAX)
    alarm('saturated', row[at + POSTED] ~= sum and 1 or 0)
  end
end

-- Posted, and what stands beside it: held, or what the fullest window to come has more.
local function figures(account, place)
  local row = account.row
  if row[KIND] == RATE then return ring_posted(account), row[HELD] end
  if row[KIND] == FORECAST then
    local fullest, _, current = track_fullest(account)
    return current, fullest - current
  end
  if row[KIND] == QUOTA then
    local at = period_of(row, place)
    if not at then return 0, 0 end
    return row[at + POSTED], row[at + HELD_]
  end
  return 0, row[HELD]
end

-- Time until the account is empty if nothing else comes.
local function reset_of(account, place)
  local row = account.row
  if row[KIND] == RATE then return ring_reset(account, row[HELD] > 0) end
  if row[KIND] == FORECAST then return track_reset(account) end
  if row[KIND] == QUOTA then
    local at = period_of(row, place)
    return at and until_(row[at + END_]) or 0
  end
  return 0
end

-- How much of `requests` posted at a place could be given back now.
local function refundable(account, place)
  local row = account.row
  if row[KIND] == RATE then
    local bucket = ring_at(row)
    local age = bucket - place
    return age >= 0 and age < row[P1] and ring_amount(account, age) or 0
  end
  if row[KIND] == QUOTA then
    local at = period_of(row, place)
    return at and max(row[at + POSTED], 0) or 0
  end
  return 0
end

-- Write what was changed.
local function store()
  local sets = {}
  for _, account in ipairs(wanted) do
    if account.dirty then
      local name = account.name
      sets[#sets + 1], sets[#sets + 2] = name, text_of(account.row)
      if account.turned then sets[#sets + 1], sets[#sets + 2] = name .. 'b', pack('<' .. rep('d', #account.cells), unpack(account.cells)) end
      if account.seconds then sets[#sets + 1], sets[#sets + 2] = name .. 's', track_pack(account) end
      if account.gateways then sets[#sets + 1], sets[#sets + 2] = name .. 'g', msgpack(account.gateways) end
    end
  end
  if #sets > 0 then call('HSET', BOOK, unpack(sets)) end
end
