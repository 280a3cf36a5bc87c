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

  -- Seconds of an account, by number; zeros are absent.
  local function seconds_of(account)
    if not account.track then
      local row, track = account.row, {}
      local stored = row[PAST] + row[AHEAD] > 0 and call('HGET', BOOK, account.name .. 's')
      if stored then
        local list, oldest = numbers(stored, 1, 'seconds'), row[NEWEST] - row[P1]
        local count = row[P1] + PLANNED
        if #list ~= count then damaged('seconds') end
        for second = oldest, oldest + count - 1 do
          local amount = list[second % count + 1]
          if amount > 0 then track[second] = amount end
        end
      elseif row[PAST] + row[AHEAD] > 0 then
        damaged('seconds')
      end
      account.track = track
    end
    return account.track
  end

  -- A number for each second that is kept, by its own number modulo their count.
  function track_pack(account)
    local row, list = account.row, {}
    local count = row[P1] + PLANNED
    for second = row[NEWEST] - row[P1], row[NEWEST] + REACH do list[second % count + 1] = account.track[second] or 0 end
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
    return kept(row, second) and seconds_of(account)[second] or 0
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

  -- Output that has landed by the end of a second so many ahead.
  local function landed(flow, step)
    if step < 0 or flow.last < 0 then return 0 end
    return flow.by[min(step, flow.last)]
  end

  -- The seconds a decision sees, by their distance from the oldest one inside the window, and the last that holds something.
  local function track_view(account, flow)
    local row = account.row
    local at, _, restart = track_at(row)
    local oldest, view, last = at - row[P1], {}, -1
    if restart then
      view[row[P1]], last = row[PAST], row[P1]
    elseif row[PAST] + row[AHEAD] > 0 then
      for second, amount in pairs(seconds_of(account)) do
        local index = second - oldest
        if index >= 0 and index < row[P1] + PLANNED and kept(row, second) then
          view[index], last = amount, max(last, index)
        end
      end
    end
    local moved = flow and flow.moved
    if moved and moved[2] ~= 0 then
      local index = moved[1] - oldest
      if index >= 0 and index < row[P1] + 2 * PLANNED + REACH then
        view[index] = max((view[index] or 0) + moved[2], 0)
        last = max(last, index)
      end
    end
    return view, last
  end

  local function inside_of(row, oldest, sum, left)
    if row[P2] == 1 or oldest == 0 then return oldest end
    local part = left >= SECOND and oldest or muldiv_up(oldest, left, SECOND)
    return max(part, oldest - div(sum + oldest, FORGOTTEN))
  end

  -- The fullest of the windows that end with each second to come, without and with a call, and the first of them; `moved`
  -- seconds from now. Behind the last second that holds something windows only get emptier.
  local function fullest_of(account, view, last, moved, flow)
    local row = account.row
    local _, left = track_at(row)
    local window, strict = row[P1], row[P2]
    local sum, without, with, current = 0, 0, 0, nil
    for index = moved + 1, min(moved + window, last) do sum = sum + (view[index] or 0) end
    local stop = max(0, last - window - moved, flow and flow.last or 0)
    for step = 0, min(stop, REACH - 1) do
      local oldest = view[moved + step] or 0
      local existing, added = sum + inside_of(row, oldest, sum, left), 0
      if flow then
        added = landed(flow, step) - landed(flow, step - window - 1)
        if step < window + strict then added = added + flow.input end
      end
      current = current or existing
      without, with = max(without, existing), max(with, existing + added)
      sum = sum + (view[moved + step + window + 1] or 0) - (view[moved + step + 1] or 0)
    end
    return without, with, current
  end

  function track_fullest(account, flow)
    local view, last = track_view(account, flow)
    return fullest_of(account, view, last, 0, flow)
  end

  -- Seconds after which the call fits if nothing else comes.
  function track_wait(account, flow, ceiling, spares)
    local view, last = track_view(account, flow)
    for moved = 1, PLANNED + account.row[P1] do
      local _, with = fullest_of(account, view, last, moved, flow)
      if with <= usable(ceiling, last >= moved and spares) then return moved end
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
      account.track = left > 0 and { [at] = left } or {}
      row[NEWEST], row[PAST], row[AHEAD], row[FAR] = at, left, 0, at
      alarm('ring_restarts', left > 0 and 1 or 0)
      return
    end
    local track = seconds_of(account)
    for second = row[NEWEST] + 1, at do
      local lands = track[second] or 0
      row[PAST] = row[PAST] + lands - (track[second - window - 1] or 0)
      row[AHEAD] = row[AHEAD] - lands
      track[second - window - 1] = nil
    end
    row[NEWEST] = at
  end

  -- Add to a second, never below zero; what could not be added.
  function track_add(account, second, amount)
    local row = account.row
    local wanted = amount < 0 and -amount or amount
    if not kept(row, second) then return wanted end
    local track = seconds_of(account)
    local there = track[second] or 0
    local done = min(wanted, amount < 0 and there or AMOUNT_MAX - row[PAST] - row[AHEAD])
    local change = amount < 0 and -done or done
    local side = second > row[NEWEST] and AHEAD or PAST
    row[side] = row[side] + change
    track[second] = there + change > 0 and there + change or nil
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
