-- Decides a reserve by reading only: where each leg is booked, how much it asks for, which limits have no room.
--
-- Nothing is written here. All legs are looked at, also after one is blocked: a denial names the longest wait and the
-- room of every leg (L14). Names and rules are those of the pure ledger's `plan` and `hint`.

-- A leg as it comes.
const L_KEY, L_NAME, L_MEASURE, L_KIND, L_P1, L_P2, L_P3, L_PERIODS = 1, 2, 3, 4, 5, 6, 7, 8
const L_BASE, L_PER, L_CAP, L_WORST, L_ESTIMATOR, L_REFUND, L_LIMITS = 9, 10, 11, 12, 13, 14, 15
-- A limit as it comes.
const M_ID, M_CEILING, M_HARD, M_SHADOW, M_COUNT, M_WORST, M_CHARGE = 1, 2, 3, 4, 5, 6, 7
-- A leg as a reservation keeps it.
const H_SUBJECT, H_NAME, H_KIND, H_MEASURE, H_FLAGS, H_PLACE, H_BASE, H_PER = 1, 2, 3, 4, 5, 6, 7, 8
const H_CAP, H_WORST, H_OUTPUT, H_HELD, H_DECIDED, H_CARRIED, H_HARD = 9, 10, 11, 12, 13, 14, 15
const AT_WORST, CHARGE, REFUND, SHADOWED = 1, 2, 4, 8

const NO_CEILING = 2 * AMOUNT_MAX
const LIKELY_MAX = 60 * SECOND

local function flagged(flags, flag) return fmod(div(flags, flag), 2) == 1 end

local function subject_of(key) return string.sub(key, -16) end

-- What the limits of a leg ask for together: the enforced ones, or the shadow ones if none is.
local function asks_of(limits)
  local enforced, shadow
  for _, limit in ipairs(limits) do
    if limit[M_SHADOW] == 1 then shadow = true else enforced = true end
  end
  local asks = { enforced = enforced, shadow = shadow, ceiling = NO_CEILING, hard = NO_CEILING, soft = NO_CEILING }
  for _, limit in ipairs(limits) do
    if limit[M_SHADOW] == 0 or not enforced then
      asks.worst = asks.worst or limit[M_WORST] == 1
      asks.charge = asks.charge or limit[M_CHARGE] == 1
      asks.ceiling = min(asks.ceiling, limit[M_CEILING])
      local side = limit[M_HARD] == 1 and 'hard' or 'soft'
      if enforced then asks[side] = min(asks[side], limit[M_CEILING]) end
    end
  end
  return asks
end

-- The expected output, so that the leg's amount is at most `most`.
local function shrink(leg, output, most)
  if leg[L_PER] == 0 or most >= AMOUNT_MAX then return output end
  local room = most * 1000
  if leg[L_BASE] + leg[L_PER] * output <= room then return output end
  return div(max(room - leg[L_BASE], 0), leg[L_PER])
end

local function spares(kind, measure, strict)
  return kind == FORECAST and (strict == 0 or measure ~= INPUT)
end

-- The period that contains now, never one older than the account's newest; nil: ask again around now.
local function period_now(leg, row)
  local starts = leg[L_PERIODS]
  if #starts == 0 then return 0, NEVER_SECOND end
  local second = div(now, SECOND)
  for index = 1, #starts - 1 do
    if starts[index] <= second and second < starts[index + 1] then
      local newest = row and newest_period(row)
      if newest and row[newest] > starts[index] then return row[newest], row[newest + END_] end
      return starts[index], starts[index + 1]
    end
  end
end

-- Where a leg is booked and how that stands; nil: recalendar.
local function spot_of(leg, account, old)
  local row, kind = account.row, leg[L_KIND]
  if kind == RATE then
    if not row then
      local bucket = div(now, leg[L_P2])
      return { start = bucket, bucket = bucket, posted = 0, held = 0 }
    end
    local bucket = ring_at(row)
    local start = leg[L_MEASURE] == REQUESTS and old.place or bucket
    return { start = start, bucket = bucket, posted = ring_posted(account), held = row[HELD] }
  end
  if kind == FORECAST then
    local second, left = track_at(row)
    return { start = second, bucket = second, left = left, posted = 0, held = 0, busy = row and track_busy(account) }
  end
  if kind == QUOTA then
    local named = old.place and row and period_of(row, old.place)
    local start, ends
    if named then start, ends = row[named], row[named + END_] else start, ends = period_now(leg, row) end
    if not start then return nil end
    local at = row and period_of(row, start)
    local posted, held = 0, 0
    if at then posted, held = row[at + POSTED], row[at + HELD_] end
    return { start = start, ends = ends, bucket = 0, posted = posted, held = held, opens = not at }
  end
  return { start = 0, bucket = 0, posted = 0, held = row and row[HELD] or 0 }
end

local function likely(row, most)
  local shared = row and div(row[MEAN_HOLD], max(row[LIVE], 1)) or 0
  return min(max(shared, SECOND), most)
end

-- Why a limit has no room: kind, wait, firm.
const TOO_LARGE, EXHAUSTED, SPENT, BUSY = 0, 1, 2, 3

local function why_of(leg, account, standing, limit)
  local row, kind, ceiling = account.row, leg[L_KIND], limit[M_CEILING]
  if standing.carried + standing.fresh > ceiling then return TOO_LARGE, 0, false end
  if kind == CONCURRENCY then return BUSY, likely(row, LIKELY_MAX), false end
  if kind == QUOTA then
    local left = until_(standing.ends)
    local spent = standing.posted + standing.fresh > ceiling
    local ends_never = #leg[L_PERIODS] == 0 or left == 0
    if spent and ends_never then return EXHAUSTED, 0, false end
    if spent then return SPENT, left, true end
    return BUSY, likely(row, ends_never and LIKELY_MAX or min(LIKELY_MAX, left)), false
  end
  local most, after
  if kind == FORECAST then
    most = (leg[L_P1] + REACH + 1) * SECOND
    local seconds = track_wait(standing.track, standing.flow, ceiling, spares(kind, leg[L_MEASURE], leg[L_P2]))
    if not seconds then return BUSY, likely(row, most), false end
    local second, left = track_at(row)
    after = max((second + seconds + 1) * SECOND - left - now, 0)
  else
    most = leg[L_P2] * leg[L_P1]
    local room = ceiling - max(standing.held, 0) - standing.fresh
    if room < 0 or not row then return BUSY, likely(row, most - leg[L_P2]), false end
    after = ring_wait(account, room, standing.extra)
  end
  return BUSY, min(after, most), after <= most and limit[M_COUNT] == 0
end

local function lacks_room(standing, ceiling)
  if standing.fresh == 0 and (standing.carried > 0 or standing.free) then return false end
  return standing.peak > usable(ceiling, standing.headroom) or standing.carried + standing.fresh > ceiling
end

-- What the second of a call's door gets when the truth is known: true input − estimated input.
local function input_difference(held, used, landed)
  local estimated = thousandth(held[H_BASE])
  local output = amount_of(held[H_BASE], held[H_PER], landed) - estimated
  return max((used or 0) - output, 0) - estimated
end

-- What an ending attempt has on the same account; nothing in a plain reserve.
local function old_of(ending, leg, account)
  local none = { held = 0, posted = 0, carried = 0 }
  if not ending or not account.row then return none end
  local subject = subject_of(account.key)
  for index, held in ipairs(ending.legs) do
    if held[H_NAME] == account.name and held[H_SUBJECT] == subject then
      if held[H_KIND] == QUOTA and not period_of(account.row, held[H_PLACE]) then return none end
      local used = ending.actual and ending.actual[index]
      if held[H_KIND] == FORECAST then
        none.place, none.moved = held[H_PLACE], { held[H_PLACE], input_difference(held, used, ending.landed) }
        return none
      end
      local old = { place = held[H_PLACE], held = held[H_HELD], posted = 0, carried = 0 }
      if held[H_MEASURE] == REQUESTS then
        old.carried = held[H_DECIDED]
      elseif held[H_MEASURE] ~= IN_FLIGHT then
        old.posted = used or 0
      end
      return old
    end
  end
  return none
end

-- The legs of the verb under way.
local asked_legs

local guesses = {}

-- Expected output before any bound, and the learner if there is one.
local function expected_of(leg, learners)
  local estimator = leg[L_ESTIMATOR]
  if estimator[1] == 0 then return estimator[2] end
  if estimator[1] == 1 then return leg[L_CAP] end
  local kind, own, prior, first = estimator[2], estimator[3], estimator[4], estimator[5]
  local id = kind .. own .. prior
  if guesses[id] == nil then
    guesses[id] = guess(kind, own, prior) or false
    if learners then learners[#learners + 1] = { own, prior, kind } end
  end
  return guesses[id] or first
end

-- One leg; false: recalendar.
local function plan_leg(plan, index, leg, profile, ending)
  local account = want(KEYS[leg[L_KEY]], leg[L_NAME])
  local row, kind = account.row, leg[L_KIND]
  local old = old_of(ending, leg, account)
  local spot = spot_of(leg, account, old)
  if not spot then return false end
  local requests = leg[L_MEASURE] == REQUESTS
  local can_spare = spares(kind, leg[L_MEASURE], leg[L_P2])
  local asks = asks_of(leg[L_LIMITS])
  local most = kind == FORECAST and usable(asks.ceiling, spot.busy and can_spare) or asks.soft
  local output = shrink(leg, min(expected_of(leg, plan.learners), leg[L_CAP]), most)
  local expected = amount_of(leg[L_BASE], leg[L_PER], output)
  local decided = max(asks.worst and max(expected, leg[L_WORST]) or expected, old.carried)
  local standing = {
    posted = spot.posted + old.posted, held = spot.held - old.held, fresh = decided - old.carried, carried = old.carried,
    free = leg[L_BASE] == 0 and leg[L_WORST] == 0 and (leg[L_PER] == 0 or leg[L_CAP] == 0), extra = old.posted,
    ceiling = asks.ceiling, enforced = asks.enforced, bucket = spot.bucket, ends = spot.ends, opens = spot.opens,
  }
  if kind == FORECAST then
    standing.flow = flow_of(spot.left, profile, leg[L_BASE], leg[L_PER], output, old.moved)
    standing.track = row and account or { row = new_row(leg[L_MEASURE], kind, leg[L_P1], leg[L_P2], 0), track = {} }
    local without, with, current = track_fullest(standing.track, standing.flow)
    standing.posted, standing.held, standing.peak = current, without - current, with
    standing.headroom = spot.busy and can_spare
  else
    standing.peak = standing.posted + max(standing.held, 0) + standing.fresh
  end
  local shadowed = false
  for _, limit in ipairs(leg[L_LIMITS]) do
    if lacks_room(standing, limit[M_CEILING]) then
      if limit[M_SHADOW] == 1 then
        shadowed = true
      elseif asks.enforced then
        local why, after, firm = why_of(leg, account, standing, limit)
        plan.blocks[#plan.blocks + 1] = { leg = index, limit = limit, why = why, after = after, firm = firm, amount = decided }
      end
    end
  end
  alarm('negative_held', standing.held < 0 and 1 or 0)
  plan.standings[index], plan.accounts[index] = standing, account
  plan.legs[index] = {
    subject_of(account.key), leg[L_NAME], kind, leg[L_MEASURE],
    (asks.worst and AT_WORST or 0) + (asks.charge and CHARGE or 0) + (leg[L_REFUND] == 1 and REFUND or 0)
      + (asks.shadow and shadowed and SHADOWED or 0),
    spot.start, leg[L_BASE], leg[L_PER], leg[L_CAP], leg[L_WORST], output,
    (requests or kind == FORECAST) and 0 or min(decided, AMOUNT_MAX - max(standing.held, 0)), decided, old.carried,
    asks.enforced and asks.hard < NO_CEILING and asks.hard or -1,
  }
  return true
end

-- All legs, or nil: recalendar. An account of another shape refuses the leg.
local function plan_all(legs, profile, ending)
  local plan = { legs = {}, standings = {}, accounts = {}, blocks = {}, learners = {} }
  for index, leg in ipairs(legs) do
    local row = want(KEYS[leg[L_KEY]], leg[L_NAME]).row
    if row and not is_shape(row, leg[L_MEASURE], leg[L_KIND], leg[L_P1], leg[L_P2], leg[L_P3]) then
      refused('shape', index - 1)
    end
  end
  for index, leg in ipairs(legs) do
    if not plan_leg(plan, index, leg, profile, ending) then return nil end
  end
  return plan
end

local function room_of(standing)
  if not standing.enforced then return AMOUNT_MAX end
  return max(standing.ceiling - standing.posted - max(standing.held, 0), 0)
end

-- `never` first, then the longest wait, then the earlier leg, then the lower ceiling.
local function comes_before(left, right)
  local rank = { [TOO_LARGE] = 0, [EXHAUSTED] = 1, [SPENT] = 2, [BUSY] = 2 }
  if rank[left.why] ~= rank[right.why] then return rank[left.why] < rank[right.why] end
  if left.after ~= right.after then return left.after > right.after end
  if left.leg ~= right.leg then return left.leg < right.leg end
  return left.limit[M_CEILING] < right.limit[M_CEILING]
end

-- Members of the due set at most `most`, oldest first.
local function due_now(most)
  return call('ZRANGEBYSCORE', DUE, '-inf', whole(steady), 'LIMIT', 0, most)
end

-- The answer to a reserve that some limit blocks.
local function denial_of(plan)
  local block, firm = plan.blocks[1], true
  for _, other in ipairs(plan.blocks) do
    firm = firm and other.firm
    if comes_before(other, block) then block = other end
  end
  local standing, account, room = plan.standings[block.leg], plan.accounts[block.leg], {}
  for index, other in ipairs(plan.standings) do room[index] = room_of(other) end
  local reset = account.row and reset_of(account, plan.legs[block.leg][H_PLACE]) or 0
  return {
    'deny', block.limit[M_ID], block.leg - 1, block.limit[M_HARD], block.why, block.after, block.firm and 1 or 0,
    block.limit[M_CEILING], standing.posted, standing.held, block.amount, reset, firm and 1 or 0, room, due_now(16),
  }
end

-- Post the denied demand of limits that count denials, once per account and bucket; restart rings in the way.
local function count_denied(plan)
  local amounts, any = {}, false
  local function bucket_of(row)
    if row[KIND] == RATE then
      local bucket, _, _, restart = ring_at(row)
      return bucket, restart
    end
    if row[KIND] == FORECAST then
      local second, _, restart = track_at(row)
      return second, restart
    end
  end
  for _, block in ipairs(plan.blocks) do
    local account = plan.accounts[block.leg]
    local bucket = account.row and bucket_of(account.row)
    local counts = block.limit[M_COUNT] == 1 and block.why == BUSY
    if bucket and counts and account.row[DENIED_BUCKET] ~= bucket + 1 and not amounts[account] then
      amounts[account], any = plan.standings[block.leg].fresh, true
    end
  end
  -- A ring that the clock left far ahead restarts when it is written (L12), and a denial would never write it.
  for _, block in ipairs(plan.blocks) do
    local account = plan.accounts[block.leg]
    local restart = account.row and select(2, bucket_of(account.row))
    if restart and not amounts[account] then amounts[account], any = 0, true end
  end
  if not any then return end
  for account, amount in pairs(amounts) do
    local row = account.row
    post(account, bucket_of(row), amount)
    row[USED], account.dirty = steady, true
    if amount > 0 then row[DENIED_BUCKET] = bucket_of(row) + 1 end
  end
  tick()
  store()
end
