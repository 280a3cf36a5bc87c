-- The seconds of a forecast account: what landed in those that have passed, what is planned in those ahead.
--
-- `past` is the sum over the window and the second before it, `ahead` over the seconds planned. A plan that nobody
-- replaces turns into the past by the clock alone. Names and rules are those of the pure ledger's `track`.
-- Most calls have none: the functions are made when the first one is met.

-- Seconds ahead that are planned.
const REACH = 61
const PLANNED = REACH + 1
const FORGOTTEN = 16
const HEARD = 130 * SECOND
const GATEWAYS_MAX = 256

-- What may be used of a ceiling.
local function usable(ceiling, headroom)
  if not headroom then return ceiling end
  return ceiling - div(ceiling * 10, 1024)
end

local has_track

function with_track()
  if has_track then return end
  has_track = true

  -- Seconds of an account, and what their numbers count from in the list.
  local function seconds_of(account)
    if not account.track then
      local row, track, base = account.row, {}, 0
      if row[PAST] + row[AHEAD] > 0 then
        local stored, count, oldest = call('HGET', BOOK, account.name .. 's'), row[P1] + PLANNED, row[NEWEST] - row[P1]
        if not stored or #stored ~= count * 8 then damaged('seconds') end
        local first = oldest % count
        track, base = { from_packed('<' .. rep('d', count - first), stored, first * 8 + 1) }, oldest - 1
        local before = { from_packed('<' .. rep('d', first), stored) }
        for index = 1, first do track[count - first + index] = before[index] end
        track[count + 1] = nil
        for index = 1, count do
          if track[index] % 1 ~= 0 or track[index] < 0 then damaged('seconds') end
        end
      end
      account.track, account.base = track, base
    end
    return account.track, account.base or 0
  end

  -- A number for each second that is kept, by its own number modulo their count.
  function track_pack(account)
    local row, list = account.row, {}
    local track, base = seconds_of(account)
    local count = row[P1] + PLANNED
    for second = row[NEWEST] - row[P1], row[NEWEST] + REACH do list[second % count + 1] = track[second - base] or 0 end
    return pack('<' .. rep('d', count), unpack(list))
  end

  -- Where now falls: the second, what is left of it, whether the track restarts.
  function track_at(row)
    local second = div(now, SECOND)
    if not row or second >= row[NEWEST] then return second, SECOND - fmod(now, SECOND), false end
    if row[NEWEST] - second > 2 * row[P1] then return second, SECOND - fmod(now, SECOND), true end
    return row[NEWEST], SECOND, false
  end

  function kept(row, second)
    return second >= row[NEWEST] - row[P1] and second <= row[NEWEST] + REACH
  end

  local function track_read(account, second)
    local row = account.row
    local at, _, restart = track_at(row)
    if restart then return second == at and row[PAST] or 0 end
    if not kept(row, second) then return 0 end
    local track, base = seconds_of(account)
    return track[second - base] or 0
  end

  -- The last second with an amount that some window from now on sees.
  function track_newest(account)
    local row = account.row
    if row[PAST] + row[AHEAD] == 0 then return nil end
    local at = track_at(row)
    for second = at + REACH, max(at - row[P1], 0), -1 do
      if track_read(account, second) > 0 then return second end
    end
  end

  function track_busy(account)
    local row = account.row
    if row[PAST] + row[AHEAD] == 0 then return false end
    return track_at(row) == row[NEWEST] or track_newest(account) ~= nil
  end

  function track_reset(account)
    local newest = track_newest(account)
    if not newest then return 0 end
    return max((newest + account.row[P1] + 1) * SECOND - now, 0)
  end

  -- How a call lands: input now, output by the end of each second to come. `moved`: a second that changes in the same step.
  function flow_of(at_left, profile, base, per_output, output, moved)
    local flow = { input = thousandth(base), by = {}, last = -1, moved = moved }
    if per_output == 0 or output == 0 then return flow end
    local ttft, pace, streamed = profile[1], max(min(profile[2], 2000000), 1000), 0
    while streamed < output and flow.last < PLANNED - 1 do
      flow.last = flow.last + 1
      streamed = min(div(max(at_left + flow.last * SECOND - ttft, 0), pace), output)
      flow.by[flow.last] = amount_of(base, per_output, streamed) - flow.input
    end
    return flow
  end

  -- What a verb sees of an account: its seconds, by their distance from the oldest one inside the window and `shift`, the
  -- last that holds something, and what each window to come holds besides the call, by its oldest second, as far as it was
  -- wanted. A call's is kept with its flow: nothing is written while it is decided.
  local function sight_of(account, flow)
    if flow and flow.sight then return flow.sight end
    local row = account.row
    local at, left, restart = track_at(row)
    local window, oldest = row[P1], at - row[P1]
    local view, shift, last = {}, 0, -1
    if restart then
      view[window], last = row[PAST], window
    elseif row[PAST] + row[AHEAD] > 0 then
      local base
      view, base = seconds_of(account)
      shift, last = oldest - base, row[NEWEST] + REACH - oldest
      while last >= 0 and (view[last + shift] or 0) <= 0 do last = last - 1 end
    end
    local moved = flow and flow.moved
    if moved and moved[2] ~= 0 then
      local index = moved[1] - oldest
      if index >= 0 and index < window + 2 * PLANNED + REACH then
        local seconds = {}
        for place = 0, last do seconds[place] = view[place + shift] end
        view, shift = seconds, 0
        view[index] = max((view[index] or 0) + moved[2], 0)
        last = max(last, index)
      end
    end
    local sum = 0
    for index = shift + 1, shift + min(window, last) do sum = sum + (view[index] or 0) end
    local sight = { view = view, shift = shift, last = last, left = left, sum = sum, windows = {}, known = -1 }
    if flow then flow.sight = sight end
    return sight
  end

  local function windows_to(sight, row, wanted)
    local view, left, sum, windows, counts_whole = sight.view, sight.left, sight.sum, sight.windows, row[P2] == 1
    local shift, behind = sight.shift, sight.shift + row[P1] + 1
    for index = sight.known + 1, wanted do
      local oldest = view[index + shift] or 0
      local inside = oldest
      if oldest > 0 and left < SECOND and not counts_whole then
        local product, held_back = oldest * left, sum + oldest
        if product <= AMOUNT_MAX then
          local rest = product % SECOND
          inside = (product - rest) / SECOND
          if rest > 0 then inside = inside + 1 end
        else
          inside = muldiv_up(oldest, left, SECOND)
        end
        held_back = oldest - (held_back - held_back % FORGOTTEN) / FORGOTTEN
        if held_back > inside then inside = held_back end
      end
      windows[index] = sum + inside
      sum = sum + (view[index + behind] or 0) - (view[index + shift + 1] or 0)
    end
    if wanted > sight.known then sight.known, sight.sum = wanted, sum end
    return windows
  end

  -- What a call adds to the windows that end with each second from its admission.
  local function added_by(flow, row)
    if flow.added then return flow.added end
    local by, last, window, added = flow.by, flow.last, row[P1], {}
    local leaves = window + row[P2]
    for step = 0, REACH - 1 do
      local amount = last >= 0 and by[step < last and step or last] or 0
      local gone = step - window - 1
      if gone >= 0 and last >= 0 then amount = amount - by[gone < last and gone or last] end
      added[step] = step < leaves and amount + flow.input or amount
    end
    flow.added = added
    return added
  end

  -- The fullest of the windows that end with each second to come, without and with a call, and the first of them. Behind
  -- the last second that holds something windows only get emptier.
  function track_fullest(account, flow)
    local row, sight = account.row, sight_of(account, flow)
    local stop = min(max(0, sight.last - row[P1], flow and flow.last or 0), REACH - 1)
    local windows, added, without, with = windows_to(sight, row, stop), flow and added_by(flow, row), 0, 0
    for step = 0, stop do
      local existing = windows[step]
      if existing > without then without = existing end
      if added then existing = existing + added[step] end
      if existing > with then with = existing end
    end
    return without, with, windows[0]
  end

  -- Seconds after which the call fits if nothing else comes. The window that was too full last is looked at first: while it
  -- is, nothing else has to be.
  function track_wait(account, flow, ceiling, spares)
    local row, sight = account.row, sight_of(account, flow)
    local last, window, full = sight.last, row[P1], 0
    local windows, added, busy = windows_to(sight, row, last), added_by(flow, row), usable(ceiling, spares)
    local plan_stop = max(flow.last, 0)
    for moved = 1, PLANNED + window do
      local most, stop = last >= moved and busy or ceiling, last - window - moved
      if stop < plan_stop then stop = plan_stop end
      if stop >= REACH then stop = REACH - 1 end
      local step = full - moved
      local fits = step < 0 or step > stop or (windows[full] or 0) + added[step] <= most
      step = 0
      while fits and step <= stop do
        if (windows[moved + step] or 0) + added[step] > most then fits, full = false, moved + step end
        step = step + 1
      end
      if fits then return moved end
    end
  end

  -- Make the current second the last one.
  function track_advance(account)
    local row = account.row
    local at, _, restart = track_at(row)
    if at == row[NEWEST] then return end
    local window = row[P1]
    account.seconds = true
    if restart or at - row[NEWEST] > window + REACH then
      local left = restart and row[PAST] or 0
      account.track, account.base = left > 0 and { [at] = left } or {}, 0
      row[NEWEST], row[PAST], row[AHEAD], row[FAR] = at, left, 0, at
      alarm('ring_restarts', left > 0 and 1 or 0)
      return
    end
    local track, base = seconds_of(account)
    for second = row[NEWEST] + 1, at do
      local lands, leaves = track[second - base] or 0, second - window - 1 - base
      row[PAST] = row[PAST] + lands - (track[leaves] or 0)
      row[AHEAD] = row[AHEAD] - lands
      track[leaves] = 0
    end
    row[NEWEST] = at
  end

  -- Add to a second, never below zero; what could not be added.
  function track_add(account, second, amount)
    local row = account.row
    local wanted = amount < 0 and -amount or amount
    if not kept(row, second) then return wanted end
    local track, base = seconds_of(account)
    local there = track[second - base] or 0
    local done = min(wanted, amount < 0 and there or AMOUNT_MAX - row[PAST] - row[AHEAD])
    local change = amount < 0 and -done or done
    local side = second > row[NEWEST] and AHEAD or PAST
    row[side] = row[side] + change
    track[second - base] = there + change
    if change > 0 then row[FAR] = max(row[FAR], second) end
    account.seconds = true
    return wanted - done
  end

  -- Write an admitted call: its input now, its output into the seconds to come.
  function track_plan(account, flow)
    local row, cut, before = account.row, 0, 0
    cut = track_add(account, row[NEWEST], flow.input)
    for step = 0, flow.last do
      local by = flow.by[step]
      if by > before then cut = cut + track_add(account, row[NEWEST] + step, by - before) end
      before = by
    end
    alarm('saturated', cut > 0 and 1 or 0)
  end

  -- A second that has left the window no longer matters, and one to come took no input.
  function post_second(account, second, amount)
    track_advance(account)
    if second <= account.row[NEWEST] then track_add(account, second, amount) end
  end

  -- --- the last batch of each gateway: id, number, heard ---

  local function gateways_of(account)
    if not account.known then
      local stored = call('HGET', BOOK, account.name .. 'g')
      account.known = stored and decode(stored, 'gateways') or {}
    end
    return account.known
  end

  function is_new_batch(account, gateway, seq)
    for _, row in ipairs(gateways_of(account)) do
      if row[1] == gateway then return seq > row[2] or row[3] + HEARD <= steady end
    end
    return true
  end

  function heard(account, gateway, seq)
    local rows = {}
    for _, row in ipairs(gateways_of(account)) do
      if row[1] ~= gateway and row[3] + HEARD > steady then rows[#rows + 1] = row end
    end
    if #rows >= GATEWAYS_MAX then
      local oldest = 1
      for index, row in ipairs(rows) do
        if row[3] < rows[oldest][3] then oldest = index end
      end
      table.remove(rows, oldest)
    end
    rows[#rows + 1] = { gateway, seq, steady }
    account.known, account.gateways = rows, rows
  end
end
