-- Reservations: live ones, their ends, and what is remembered of them.
--
-- One key for each (id, attempt). Live: 0, admitted, due, sent, context, learners, legs. Ended: how, admitted, ended, legs,
-- and of an expired one learners and quota legs for the one correction (L8). An end frees every hold and posts to what
-- the reservation named (L5), in full (L4); requests were posted at the door and are only ever given back (L6).

const R_STATE, R_ADMITTED, R_DUE, R_SENT, R_CONTEXT, R_LEARNERS, R_LEGS = 1, 2, 3, 4, 5, 6, 7
const T_ENDED, T_COUNT, T_LEARNERS, T_QUOTAS = 3, 4, 5, 6
const LIVE_NOW, SETTLED, RELEASED, EXPIRED, CORRECTED, REBOOKED = 0, 1, 2, 3, 4, 5
-- A quota leg of a tombstone.
const Q_SUBJECT, Q_NAME, Q_LEG, Q_REQUESTS, Q_REFUND, Q_PERIOD, Q_CHARGED, Q_DECIDED = 1, 2, 3, 4, 5, 6, 7, 8
-- How an attempt ends, as far as amounts are concerned.
const USED_, NEVER_SENT, FAILED, LAPSED, MOVED = 1, 2, 3, 4, 5

-- A tombstone's key outlives what it answers for, so that only the steady clock decides.
const TOMB_TTL = 2 * REMEMBER / 1000

-- A reservation as it is kept; nil if unknown or forgotten.
local function reservation(key)
  local stored = call('GET', key)
  if not stored then return nil end
  local row = decode(stored, 'reservation')
  if not row[R_STATE] or #row < 4 then damaged('reservation') end
  if row[R_STATE] ~= LIVE_NOW and row[T_ENDED] + REMEMBER <= steady then return nil end
  return row
end

-- KEYS of the subjects, from a position on.
local function subject_keys(from)
  local found = {}
  for index = from, #KEYS do found[subject_of(KEYS[index])] = KEYS[index] end
  return found
end

-- The accounts of a reservation's legs.
local function accounts_of(legs, keys)
  local found = {}
  for index, leg in ipairs(legs) do
    local key = keys[leg[H_SUBJECT]]
    if not key then refused('keys', index - 1) end
    found[index] = want(key, leg[H_NAME])
  end
  return found
end

-- What the due set names a reservation by: id, attempt, and each subject once.
local function member_of(id, attempt, legs)
  local parts, known = { id, whole(attempt) }, {}
  for _, leg in ipairs(legs) do
    local subject = leg[H_SUBJECT]
    if not known[subject] then
      known[subject] = true
      parts[#parts + 1] = subject
    end
  end
  return table.concat(parts, ':')
end

local function moves(leg, onto)
  for _, next_leg in ipairs(onto) do
    if next_leg[H_NAME] == leg[H_NAME] and next_leg[H_SUBJECT] == leg[H_SUBJECT] and next_leg[H_PLACE] == leg[H_PLACE] then
      return true
    end
  end
  return false
end

-- What an end posts per leg, what went beyond what was decided, and what it charges to quotas.
local function effects(legs, found, how)
  local posts, overrun, charges = {}, {}, {}
  for index, leg in ipairs(legs) do
    local row, measure = found[index].row, leg[H_MEASURE]
    local used = how.actual and how.actual[index] or 0
    local charge = 0
    posts[index], overrun[index] = 0, 0
    if how.kind == LAPSED and flagged(leg[H_FLAGS], CHARGE) then
      used = amount_of(leg[H_BASE], leg[H_PER], leg[H_OUTPUT])
    end
    if not row then
      alarm('misfits', 1)
    elseif measure == IN_FLIGHT then
      charge = 0
    elseif measure == REQUESTS then
      local moved = how.kind == MOVED and moves(leg, how.onto)
      local back = how.kind == NEVER_SENT or flagged(leg[H_FLAGS], REFUND)
        and (how.kind == FAILED or how.kind == MOVED and not how.actual and not moved)
      local wanted = back and leg[H_DECIDED] or 0
      local refund = wanted > 0 and min(wanted, refundable(found[index], leg[H_PLACE])) or 0
      alarm('dropped_refunds', refund < wanted and 1 or 0)
      posts[index] = -refund
      charge = moved and 0 or leg[H_DECIDED] - refund
    else
      if leg[H_KIND] == FORECAST then
        posts[index] = how.kind == LAPSED and 0
          or input_difference(leg, how.actual and how.actual[index], how.actual and how.landed or 0)
      else
        posts[index], charge = used, used
      end
      overrun[index] = how.kind == LAPSED and 0 or max(used - leg[H_DECIDED], 0)
    end
    if charge ~= 0 and leg[H_KIND] == QUOTA then
      charges[#charges + 1] = { leg[H_SUBJECT], leg[H_NAME], leg[H_PLACE], charge }
    end
  end
  return posts, overrun, charges
end

local function mean(old, new)
  return div(old * 7 + new * 3, 10)
end

-- Free the holds of an attempt and post what it used.
local function free(reserved, found, posts)
  local lived = max(now - reserved[R_ADMITTED], 0)
  for index, leg in ipairs(reserved[R_LEGS]) do
    local account = found[index]
    local row = account.row
    if row then
      row[USED], row[LIVE], account.dirty = steady, max(row[LIVE] - 1, 0), true
      if leg[H_MEASURE] ~= REQUESTS and leg[H_KIND] ~= FORECAST then
        row[MEAN_HOLD] = row[MEAN_HOLD] == 0 and lived or mean(row[MEAN_HOLD], lived)
      end
      if leg[H_HELD] > 0 then hold(account, leg[H_PLACE], -leg[H_HELD]) end
      if posts[index] ~= 0 then post(account, leg[H_PLACE], posts[index]) end
    end
  end
end

-- What a late claim must know of an expired reservation.
local function quotas_of(legs, posts)
  local quotas = {}
  for index, leg in ipairs(legs) do
    if leg[H_KIND] == QUOTA then
      local requests = leg[H_MEASURE] == REQUESTS
      local at_door = requests and leg[H_DECIDED] or 0
      quotas[#quotas + 1] = {
        leg[H_SUBJECT], leg[H_NAME], index, requests and 1 or 0, flagged(leg[H_FLAGS], REFUND) and 1 or 0, leg[H_PLACE],
        max(at_door + posts[index], 0), leg[H_DECIDED],
      }
    end
  end
  return quotas
end

-- The tombstone of an attempt, and its leave from the due set.
local function bury(key, id, attempt, reserved, how, posts)
  local tomb = { how, reserved[R_ADMITTED], steady, #reserved[R_LEGS] }
  if how == EXPIRED then
    tomb[T_LEARNERS], tomb[T_QUOTAS] = reserved[R_LEARNERS], quotas_of(reserved[R_LEGS], posts)
  end
  call('SET', key, pack(tomb), 'PX', whole(TOMB_TTL))
  call('ZREM', DUE, member_of(id, attempt, reserved[R_LEGS]))
end

-- Ended calls on their way to the journal.
local function journal(id, attempt, seq, source, admitted, posted, body)
  call('XADD', JOURNAL, '*', 'e', pack({ id, attempt, seq, source, admitted, now, posted }), 'b', body)
end

-- The answer to a claim: what it met (0 unknown, 1 held, 2 late, 10 + how it had ended), overruns, charges, admission.
local function claimed(met, overrun, posted, admitted)
  return { met, overrun, posted, admitted }
end

-- A claim that changes nothing.
local function met_only(row)
  if not row then return claimed(0, {}, {}, 0) end
  local overrun = {}
  for index = 1, row[T_COUNT] do overrun[index] = 0 end
  return claimed(10 + row[R_STATE], overrun, {}, row[R_ADMITTED])
end

-- Write an admitted reservation.
local function take(key, id, attempt, life, profile, context, plan)
  for index, leg in ipairs(plan.legs) do
    local account, standing = plan.accounts[index], plan.standings[index]
    local asked = asked_legs[index]
    account.row = account.row or new_row(leg[H_MEASURE], leg[H_KIND], asked[L_P1], asked[L_P2], asked[L_P3])
    local row = account.row
    opened[account.key] = opened[account.key] or row[LIVE] == 0 and row[VERSION] == 0
    if standing.opens then open_period(row, leg[H_PLACE], standing.ends) end
    row[USED], row[LIVE], account.dirty = steady, row[LIVE] + 1, true
    if flagged(leg[H_FLAGS], SHADOWED) then
      row[SHADOW_DENIED], row[SHADOW_DEMAND] = row[SHADOW_DENIED] + 1, row[SHADOW_DEMAND] + leg[H_DECIDED]
    end
    if leg[H_KIND] == FORECAST then
      account.track = account.track or (row[NEWEST] == 0 and {} or nil)
      track_advance(account)
      local _, left = track_at(row)
      track_plan(account, flow_of(left, profile, leg[H_BASE], leg[H_PER], leg[H_OUTPUT]))
    elseif leg[H_MEASURE] == REQUESTS then
      post(account, leg[H_PLACE], leg[H_DECIDED] - leg[H_CARRIED])
    else
      hold(account, leg[H_PLACE], leg[H_HELD])
    end
  end
  local due = steady + life
  call('SET', key, pack({ LIVE_NOW, now, due, 0, context, plan.learners, plan.legs }))
  call('ZADD', DUE, whole(due), member_of(id, attempt, plan.legs))
end

-- A receipt: what is stored of each leg beside the figures of its account.
local function receipt(admitted, legs, found, ceilings, resets)
  local rows = {}
  for index, leg in ipairs(legs) do
    local posted, held = figures(found[index], leg[H_PLACE])
    rows[index] = {
      leg[H_PLACE], amount_of(leg[H_BASE], leg[H_PER], leg[H_OUTPUT]), leg[H_HELD], leg[H_OUTPUT], ceilings[index], posted, held,
      resets and resets[index] or reset_of(found[index], leg[H_PLACE]), flagged(leg[H_FLAGS], SHADOWED) and 1 or 0,
    }
  end
  return { 'admit', admitted, rows }
end

-- The receipt of an attempt that was just written.
local function admitted(plan)
  local ceilings, resets = {}, {}
  for index, leg in ipairs(plan.legs) do
    local standing, row = plan.standings[index], plan.accounts[index].row
    ceilings[index] = standing.ceiling
    if leg[H_KIND] == QUOTA then resets[index] = until_(standing.ends) end
    local posts = leg[H_MEASURE] == REQUESTS and standing.fresh or 0
    if leg[H_KIND] == RATE and (row[HELD] > 0 or posts > 0) then
      resets[index] = max((standing.bucket + row[P1]) * row[P2] - now, 0)
    end
  end
  return receipt(now, plan.legs, plan.accounts, ceilings, resets)
end

-- The answer if the attempt is known already.
local function repeated(row, legs)
  if not row then return nil end
  if row[R_STATE] ~= LIVE_NOW then return { 'ended', row[R_STATE] } end
  local kept, found, ceilings = row[R_LEGS], {}, {}
  for index = 1, max(#kept, #legs) do
    local held, leg = kept[index], legs[index]
    local same = held and leg and held[H_NAME] == leg[L_NAME] and held[H_SUBJECT] == subject_of(KEYS[leg[L_KEY]])
      and held[H_BASE] == leg[L_BASE] and held[H_PER] == leg[L_PER] and held[H_CAP] == leg[L_CAP] and held[H_WORST] == leg[L_WORST]
    if not same then return { 'conflict', index - 1 } end
    found[index] = want(KEYS[leg[L_KEY]], leg[L_NAME])
    ceilings[index] = asks_of(leg[L_LIMITS]).ceiling
    if not found[index].row then damaged('account') end
  end
  return receipt(row[R_ADMITTED], kept, found, ceilings)
end
