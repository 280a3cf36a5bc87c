-- settle and release: end an attempt with the truth or without, or correct an expired one, once (L3, L4, L8).
-- KEYS: the reservation, then the subjects of its accounts. Arguments: id, attempt, how (1 settle, 2 never sent, 3 failed),
-- actual per leg, landed, learned or -1, whether there is an entry, whether the claim is too old to be booked; entry.

local id, attempt, how, actual, landed, learned, has_entry, stale = unpack(ARGS, 1, 8)
local entry = ARGV[2]
local row = not stale and reservation(KEYS[6]) or nil

if not row then
  if has_entry then
    journal(id, attempt, 65535, 7, 0, {}, entry)
    alarm('unknown_claims', 1)
    count_alarms()
  end
  return answer(met_only(nil))
end

local keys = subject_keys(7)
if row[R_STATE] == LIVE_NOW then
  local legs = row[R_LEGS]
  if how == USED_ and #actual ~= #legs then refused('actual_count') end
  local found = accounts_of(legs, keys)
  fetch()
  local posts, overrun, charges = effects(legs, found, { kind = how, actual = how == USED_ and actual, landed = landed })
  probe()
  free(row, found, posts)
  if learned >= 0 then
    with_learning()
    learn(row[R_LEARNERS], learned)
    store_estimates()
  end
  bury(KEYS[6], id, attempt, row, how == USED_ and SETTLED or RELEASED, posts)
  if how ~= NEVER_SENT then journal(id, attempt, 0, how == USED_ and 1 or 2, row[R_ADMITTED], charges, entry) end
  tick()
  store()
  return answer(claimed(1, overrun, charges, row[R_ADMITTED]))
end

if row[R_STATE] ~= EXPIRED then return answer(met_only(row)) end
if how == USED_ and #actual ~= row[T_COUNT] then refused('actual_count') end

local said, posted = met_only(row), {}
for _, quota in ipairs(row[T_QUOTAS]) do
  local key = keys[quota[Q_SUBJECT]]
  if not key then refused('keys', quota[Q_LEG] - 1) end
  want(key, quota[Q_NAME])
end
fetch()
for _, quota in ipairs(row[T_QUOTAS]) do
  local used, change = how == USED_ and actual[quota[Q_LEG]] or 0, 0
  local requests = quota[Q_REQUESTS] == 1
  if how == USED_ then
    -- A settle says what was used; it never gives requests back.
    change = (requests and max(used, quota[Q_CHARGED]) or used) - quota[Q_CHARGED]
  elseif not (how == FAILED and requests and quota[Q_REFUND] == 0) then
    change = -quota[Q_CHARGED]
  end
  if not requests then said[2][quota[Q_LEG]] = max(used - quota[Q_DECIDED], 0) end
  if change ~= 0 then
    posted[#posted + 1] = { quota[Q_SUBJECT], quota[Q_NAME], quota[Q_PERIOD], change }
    local account = want(keys[quota[Q_SUBJECT]], quota[Q_NAME])
    if account.row then
      post(account, quota[Q_PERIOD], change)
      account.dirty = true
    else
      alarm('dropped_postings', 1)
    end
  end
end
probe()
if learned >= 0 then
  with_learning()
  learn(row[T_LEARNERS], learned)
  store_estimates()
end
call('SET', KEYS[6], pack({ CORRECTED, row[R_ADMITTED], row[T_ENDED], row[T_COUNT] }), 'PX', whole(TOMB_TTL))
journal(id, attempt, 1, 5, row[R_ADMITTED], posted, entry)
tick()
store()
return answer(claimed(2, said[2], posted, row[R_ADMITTED]))
