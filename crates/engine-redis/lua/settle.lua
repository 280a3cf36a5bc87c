-- settle and release: end an attempt with the truth or without, or correct an expired one, once (L3, L4, L8).
-- KEYS: the reservation. Arguments: the claim, how (1 settle, 2 never sent, 3 failed), landed, learned or -1, whether there
-- is an entry, whether the claim is too old to be booked, actual per leg; entry.

local claim, how, landed, learned, has_entry, stale, after = from_packed('<c18BddBB', ARGV[1])
local actual = numbers(ARGV[1], after, 'arguments')
has_entry, stale = has_entry == 1, stale == 1
local entry = ARGV[2]
local row = not stale and reservation(KEYS[3]) or nil

if not row then
  if has_entry then
    journal(claim, 65535, 7, 0, {}, entry)
    alarm('unknown_claims', 1)
    count_alarms()
  end
  return answer(met_only(nil))
end

if row[R_STATE] == LIVE_NOW then
  local legs = row[R_LEGS]
  if how == USED_ and #actual ~= #legs then refused('actual_count') end
  local found = accounts_of(legs)
  fetch()
  local posts, overrun, charges = effects(legs, found, { kind = how, actual = how == USED_ and actual, landed = landed })
  probe(true)
  free(row, found, posts)
  if learned >= 0 then
    with_learning()
    learn(row[R_LEARNERS], learned)
    store_estimates()
  end
  bury(KEYS[3], row, how == USED_ and SETTLED or RELEASED, posts)
  if how ~= NEVER_SENT then journal(claim, 0, how == USED_ and 1 or 2, row[R_ADMITTED], charges, entry) end
  tick()
  store()
  return answer(claimed(1, overrun, charges, row[R_ADMITTED]))
end

if row[R_STATE] ~= EXPIRED then return answer(met_only(row)) end
if how == USED_ and #actual ~= row[T_COUNT] then refused('actual_count') end

local said, posted = met_only(row), {}
for _, quota in ipairs(row[T_QUOTAS]) do want(quota[Q_ACCOUNT]) end
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
    posted[#posted + 1] = { quota[Q_ACCOUNT], quota[Q_PERIOD], change }
    local account = want(quota[Q_ACCOUNT])
    if account.row then
      post(account, quota[Q_PERIOD], change)
      account.dirty = true
    else
      alarm('dropped_postings', 1)
    end
  end
end
probe(true)
if learned >= 0 then
  with_learning()
  learn(row[T_LEARNERS], learned)
  store_estimates()
end
call('SET', KEYS[3], tomb_of(CORRECTED, row[R_ADMITTED], row[T_ENDED], row[T_COUNT]), 'PX', whole(TOMB_TTL))
journal(claim, 1, 5, row[R_ADMITTED], posted, entry)
tick()
store()
return answer(claimed(2, said[2], posted, row[R_ADMITTED]))
