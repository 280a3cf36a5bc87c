-- renew: extend a life, and grow the holds of a stream that outgrew its estimate (L7, L9).
-- KEYS: the reservation. Arguments: life, sent, output now expected or -1, outgrown or -1.
-- Soft legs grow whatever room there is; hard legs held at the expected demand are decided together; a worst case never grows.

local life, sent, output, outgrew = unpack(from_msgpack(ARGV[1]), 1, 4)
local row = reservation(KEYS[3])
if not row then return answer({ 'unknown' }) end
if row[R_STATE] ~= LIVE_NOW then return answer({ 'ended', row[R_STATE] }) end

local legs, steps, short = row[R_LEGS], {}, {}
if output >= 0 then
  local found = accounts_of(legs)
  fetch()
  for index, leg in ipairs(legs) do
    local measure, account = leg[H_MEASURE], found[index]
    local grows = leg[H_KIND] ~= FORECAST and measure ~= REQUESTS and measure ~= IN_FLIGHT
      and not flagged(leg[H_FLAGS], AT_WORST) and leg[H_OUTPUT] < min(output, leg[H_CAP])
    if grows and account.row then
      local most = min(output, leg[H_CAP])
      local total = held_of(account.row, leg[H_PLACE])
      local wanted = max(amount_of(leg[H_BASE], leg[H_PER], most), leg[H_HELD])
      local more = min(wanted - leg[H_HELD], max(AMOUNT_MAX - max(total, 0), 0))
      local hard = leg[H_HARD] >= 0
      steps[#steps + 1] = { index = index, account = account, output = most, more = more, hard = hard }
      if hard and more > 0 and figures(account, leg[H_PLACE]) + max(total, 0) + more > leg[H_HARD] then
        short[#short + 1] = index - 1
      end
    end
  end
end

probe()
row[R_DUE], row[R_SENT] = max(row[R_DUE], steady + life), max(row[R_SENT], sent)
for _, step in ipairs(steps) do
  if not step.hard or #short == 0 then
    local leg = legs[step.index]
    leg[H_OUTPUT], leg[H_HELD] = step.output, leg[H_HELD] + step.more
    if step.hard then leg[H_DECIDED] = leg[H_HELD] end
    hold(step.account, leg[H_PLACE], step.more)
    step.account.dirty = true
  end
end
if outgrew >= 0 then
  with_learning()
  outgrown(row[R_LEARNERS], outgrew)
  store_estimates()
end
call('SET', KEYS[3], msgpack(row))
call('ZADD', DUE, whole(row[R_DUE]), row[R_MEMBER])
tick()
store()
if #short > 0 then return answer({ 'short', short }) end
local held = {}
for index, leg in ipairs(legs) do held[index] = leg[H_HELD] end
return answer({ 'held', held })
