-- restore: a reservation as its voucher tells, without deciding (L5); once for each id and attempt.
-- KEYS: the reservation. Arguments: how (0 held, else the end), legs, what was answered per leg
-- (place, output, held, decided), life, sent, admitted, and of an ended one: amounts per leg or nil, landed, its age, whether
-- there is an entry; the claim, member, context or entry.
-- Answers: done, known (it has ended here), live (it has not, and the voucher tells an end with its amounts).

local how, form, answered, life, sent, admitted, posted, landed, age, has_entry = unpack(from_msgpack(ARGV[1]), 1, 10)
-- However long ago it ended: what is here is not restored a second time.
local legs, stored = legs_of(form), call('GET', KEYS[3])
if stored then
  local row = record_of(stored)
  local is_live = row[R_STATE] == LIVE_NOW
  if how == LIVE_NOW or not is_live and (row[R_STATE] ~= EXPIRED or not posted) then return answer('known') end
  if posted then return answer('live') end
  -- The journal's sums have what it posted: only its holds go.
  local found, nothing = accounts_of(row[R_LEGS]), {}
  for index = 1, #row[R_LEGS] do nothing[index] = 0 end
  fetch()
  probe()
  free(row, found, nothing)
  bury(KEYS[3], row, how, nothing)
  tick()
  store()
  return answer('done')
end

for _, leg in ipairs(legs) do
  want(leg[L_ACCOUNT])
  if leg[L_KIND] == FORECAST then with_track() end
end
fetch()

-- An amount into the bucket of its own time, if that is still in the ring.
local function put(account, number, amount)
  local row = account.row
  ring_advance(account)
  local age_ = max(row[NEWEST] - number, 0)
  if amount <= 0 or age_ >= row[P1] then return end
  if age_ == 0 then return ring_post(account, amount) end
  local taken = min(amount, AMOUNT_MAX - row[SUM])
  set_cell(account, number, cell(account, number) + taken)
  row[SUM], row[DECAYED] = row[SUM] + taken, row[DECAYED] + taken * (row[P1] - age_)
  row[TOP] = max(row[TOP], number)
end

-- The period that a place names, opened if need be.
local function period_at(account, leg, place)
  local starts, ends = leg[L_PERIODS], NEVER_SECOND
  for index = 1, #starts - 1 do
    if starts[index] == place then ends = starts[index + 1] end
  end
  with_period(account.row, place, ends)
end

local function ended_bucket(width) return div(max(now - age, 0), width) end

local kept, learners, charges, known = {}, {}, {}, {}
probe(true)
for index, leg in ipairs(legs) do
  local account = want(leg[L_ACCOUNT])
  local place, output, held, decided = unpack(answered[index], 1, 4)
  local kind, measure = leg[L_KIND], leg[L_MEASURE]
  local stored = account.row
  local fits = not stored or is_shape(stored, measure, kind, leg[L_P1], leg[L_P2], leg[L_P3])
  if not fits then
    alarm('misfits', 1)
  else
    account.row = stored or new_row(measure, kind, leg[L_P1], leg[L_P2], leg[L_P3])
    account.dirty, account.row[USED] = true, steady
    if kind == QUOTA then period_at(account, leg, place) end
    if kind == FORECAST then account.track = account.track or (account.row[NEWEST] == 0 and {} or nil) end
    local input = thousandth(leg[L_BASE])
    if how == LIVE_NOW then
      account.row[LIVE] = account.row[LIVE] + 1
      if kind == FORECAST then
        post_second(account, place, input)
      elseif measure ~= REQUESTS then
        hold(account, place, held)
      elseif kind == RATE then
        put(account, place, decided)
      else
        post(account, place, decided)
      end
    elseif posted and posted[index] > 0 and kind ~= CONCURRENCY then
      local amount = posted[index]
      if kind == FORECAST then
        local output_ = min(amount, max(amount_of(leg[L_BASE], leg[L_PER], landed) - input, 0))
        post_second(account, place, amount - output_)
        post_second(account, ended_bucket(SECOND), output_)
      elseif kind == RATE then
        put(account, measure == REQUESTS and place or ended_bucket(leg[L_P2]), amount)
      else
        post(account, place, amount)
      end
    end
  end
  if kind == QUOTA and posted and posted[index] ~= 0 then
    charges[#charges + 1] = { leg[L_ACCOUNT], place, posted[index] }
  end
  local estimator = leg[L_ESTIMATOR]
  local learner = estimator[1] == 2 and estimator[2] .. estimator[3] .. estimator[4]
  if learner and not known[learner] then
    known[learner] = true
    learners[#learners + 1] = { estimator[3], estimator[4], estimator[2] }
  end
  local asks = asks_of(leg[L_LIMITS])
  local carries_hold = measure ~= REQUESTS and kind ~= FORECAST and fits
  kept[index] = {
    leg[L_ACCOUNT], kind, measure,
    (asks.worst and AT_WORST or 0) + (asks.charge and CHARGE or 0) + (leg[L_REFUND] == 1 and REFUND or 0),
    place, leg[L_BASE], leg[L_PER], leg[L_CAP], leg[L_WORST], output, carries_hold and held or 0, decided, 0,
    asks.enforced and asks.hard < NO_CEILING and asks.hard or -1,
  }
end
if how == LIVE_NOW then
  local due = steady + life
  call('ZADD', DUE, whole(due), ARGV[3])
  call('SET', KEYS[3], msgpack({ LIVE_NOW, admitted, due, sent, ARGV[4], learners, kept, ARGV[3] }))
else
  call('SET', KEYS[3], tomb_of(how, admitted, steady, #legs), 'PX', whole(TOMB_TTL))
  if has_entry then journal(ARGV[2], 0, ({ 1, 2, 3, 1, 4 })[how], admitted, charges, ARGV[4]) end
end
tick()
store()
return answer('done')
