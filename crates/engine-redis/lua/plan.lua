-- Decides a reserve by reading only: where each leg is booked, how much it asks for, which limits have no room.
--
-- Nothing is written here. All legs are looked at, also after one is blocked: a denial names the longest wait and the
-- room of every leg (L14). Names and rules are those of the pure ledger's `plan` and `hint`.

-- Legs from their long form: kinds, demands, and legs that name both.
local function legs_of(form)
  local kinds, demands, legs, known = form[1], form[2], {}, {}
  for index, row in ipairs(form[3]) do
    local kind, demand, limits = kinds[row[2]], demands[row[3]], {}
    for at, limit in ipairs(row[4]) do
      local flags = known[limit[3]]
      if not flags then
        flags = {}
        for place = 0, 4 do flags[place + 1] = flagged(limit[3], 2 ^ place) and 1 or 0 end
        known[limit[3]] = flags
      end
      limits[at] = { limit[1], limit[2], flags[1], flags[2], flags[3], flags[4], flags[5] }
    end
    legs[index] = {
      row[1], kind[1], kind[2], kind[3], kind[4], kind[5], kind[6], demand[1], demand[2], demand[3], demand[4], demand[5], demand[6],
      limits,
    }
  end
  return legs
end

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

-- Longest likely wait for a quota or concurrency account.
const LIKELY_MAX = 60 * SECOND

local why_of, denial_of, count_denied

-- Why a limit denies, how long to wait, and which of several is named (L14): made when the first one denies.
local function with_denials()
  if why_of then return end

  -- Time after which at most `room` is posted if nothing else is; `extra` counts as posted to the current bucket.
  local function ring_wait(account, room, extra)
    local row = account.row
    local bucket, _, at_inside = ring_at(row)
    local n, width, weights = row[P1], row[P2], row[P3]
    local sum, decayed = ring_sums(account)
    sum, decayed = sum + extra, decayed + extra * n
    for step = 0, n - 1 do
      local age = n - 1 - step
      local oldest = ring_amount(account, age) + (age == 0 and extra or 0)
      local inside = step == 0 and at_inside or 0
      local fits
      if weights == WHOLE then
        fits = sum <= room and inside
      elseif weights == DECAY then
        fits = decayed <= room * n and inside
      elseif sum - oldest <= room then
        local left = room - (sum - oldest)
        if muldiv_up(oldest, width - min(inside, width), width) <= left then
          fits = inside
        else
          local first = width - min(muldiv(width, min(left, oldest), oldest), width)
          fits = first < width and first
        end
      end
      if fits then return max((bucket + step) * width + fits - now, 0) end
      decayed = decayed - sum
      sum = sum - oldest
    end
    return max((bucket + n) * width - now, 0)
  end

  local function likely(row, most)
    local shared = row and div(row[MEAN_HOLD], max(row[LIVE], 1)) or 0
    return min(max(shared, SECOND), most)
  end

  function why_of(leg, account, standing, limit)
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

  -- The answer to a reserve that some limit blocks.
  function denial_of(plan)
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
  function count_denied(plan)
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
end

local function lacks_room(standing, ceiling)
  if standing.fresh == 0 and (standing.carried > 0 or standing.free) then return false end
  return standing.peak > usable(ceiling, standing.headroom) or standing.carried + standing.fresh > ceiling
end

-- What an ending attempt has on the same account; nothing in a plain reserve.
local function old_of(ending, leg, account)
  local none = { held = 0, posted = 0, carried = 0 }
  if not ending or not account.row then return none end
  for index, held in ipairs(ending.legs) do
    if held[H_ACCOUNT] == account.name then
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
    with_guesses()
    guesses[id] = guess(kind, own, prior) or false
    if learners then learners[#learners + 1] = { own, prior, kind } end
  end
  return guesses[id] or first
end

-- One leg; false: recalendar.
local function plan_leg(plan, index, leg, profile, ending)
  local account = want(leg[L_ACCOUNT])
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
        with_denials()
        local why, after, firm = why_of(leg, account, standing, limit)
        plan.blocks[#plan.blocks + 1] = { leg = index, limit = limit, why = why, after = after, firm = firm, amount = decided }
      end
    end
  end
  alarm('negative_held', standing.held < 0 and 1 or 0)
  plan.standings[index], plan.accounts[index] = standing, account
  plan.legs[index] = {
    leg[L_ACCOUNT], kind, leg[L_MEASURE],
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
    if leg[L_KIND] == FORECAST then with_track() end
    local row = want(leg[L_ACCOUNT]).row
    if row and not is_shape(row, leg[L_MEASURE], leg[L_KIND], leg[L_P1], leg[L_P2], leg[L_P3]) then
      refused('shape', index - 1)
    end
  end
  for index, leg in ipairs(legs) do
    if not plan_leg(plan, index, leg, profile, ending) then return nil end
  end
  return plan
end

-- Write an admitted reservation.
local function take(key, member, life, profile, context, plan)
  for index, leg in ipairs(plan.legs) do
    local account, standing = plan.accounts[index], plan.standings[index]
    local asked = asked_legs[index]
    account.row = account.row or new_row(leg[H_MEASURE], leg[H_KIND], asked[L_P1], asked[L_P2], asked[L_P3])
    local row = account.row
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
  call('ZADD', DUE, whole(due), member)
  call('SET', key, msgpack({ LIVE_NOW, now, due, 0, context, plan.learners, plan.legs, member }))
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
    local same = held and leg and held[H_ACCOUNT] == leg[L_ACCOUNT] and held[H_BASE] == leg[L_BASE] and held[H_PER] == leg[L_PER] and held[H_CAP] == leg[L_CAP] and held[H_WORST] == leg[L_WORST]
    if not same then return { 'conflict', index - 1 } end
    found[index] = want(leg[L_ACCOUNT])
    ceilings[index] = asks_of(leg[L_LIMITS]).ceiling
    if not found[index].row then damaged('account') end
  end
  return receipt(row[R_ADMITTED], kept, found, ceilings)
end
