-- How an attempt ends: what it posts, what it frees, what is remembered of it (L3–L8).

local function moves(leg, onto)
  for _, next_leg in ipairs(onto) do
    if next_leg[H_ACCOUNT] == leg[H_ACCOUNT] and next_leg[H_PLACE] == leg[H_PLACE] then
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
      charges[#charges + 1] = { leg[H_ACCOUNT], leg[H_PLACE], charge }
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
        leg[H_ACCOUNT], index, requests and 1 or 0, flagged(leg[H_FLAGS], REFUND) and 1 or 0, leg[H_PLACE],
        max(at_door + posts[index], 0), leg[H_DECIDED],
      }
    end
  end
  return quotas
end

-- The tombstone of an attempt, and its leave from the due set.
local function bury(key, reserved, how, posts)
  local tomb
  if how == EXPIRED then
    tomb = msgpack({
      how, reserved[R_ADMITTED], steady, #reserved[R_LEGS], reserved[R_LEARNERS], quotas_of(reserved[R_LEGS], posts),
    })
  else
    tomb = tomb_of(how, reserved[R_ADMITTED], steady, #reserved[R_LEGS])
  end
  call('SET', key, tomb, 'PX', whole(TOMB_TTL))
  call('ZREM', DUE, reserved[R_MEMBER])
end
