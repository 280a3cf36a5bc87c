-- The quick way of a verb: straight code for what nearly every call is, without making functions or tables of it.
--
-- It answers only where the long way would say the same, and leaves (`break`) before it has written anything wherever it
-- meets something else: a clock that stepped back, a ring that restarts, a limit that might be full, an account to be
-- opened, a value that is not as it should be. The long way follows in the same script and decides.
--
-- What costs is calls and growth, not steps: a form is unpacked at once and read by place, and a table gets its room when
-- it is made (`{ nil, nil, … }`): each time it grows costs as much as forty steps.
--
-- What it is given (`quick.rs`): life, profile; counts; member; kinds of estimators, their fields; accounts; demands; kinds of
-- legs; legs; hard ceilings.

const RATE_ROW = '<c12ddddddddd'
-- Of a row without what comes last, and of that; of a demand.
const RATE_BYTES, QUOTA_BYTES, SLOTS_BYTES, RARE_BYTES, DEMAND_BYTES = 84, 76, 52, 24, 42
-- A kind of legs, and a leg with its hard ceiling.
const KIND_BYTES, LEG_BYTES = 30, 18
const ESTIMATOR_BYTES = 25
const DEMAND_FORM, KIND_FORM = 'BBddddd', 'c12Bxdd'
-- What a leg is: requests or amounts of a rate, of a quota, slots, a forecast.
const RATE_REQUESTS, RATE_AMOUNTS, QUOTA_REQUESTS, QUOTA_AMOUNTS, SLOTS, PLANNED_LEG = 1, 2, 3, 4, 5, 6

local quick_unpack, quick_pack, repeated_text = struct.unpack, struct.pack, string.rep

-- Sum of some cells in a row.
local function cells_sum(ring, first, count)
  local cells, sum = { quick_unpack('<' .. repeated_text('d', count), ring, first * 8 + 1) }, 0
  for index = 1, count do sum = sum + cells[index] end
  return sum
end

-- A ring whose newest bucket becomes a later one: its sum then, and the older buckets if they have changed. Nil: damage.
local function turned(name, n, newest, sum, head, bucket)
  if sum == 0 then return 0 end
  local gone, ring = bucket - newest, nil
  if gone >= n then return 0, sum ~= head and repeated_text('\0', n * 8) or nil end
  if sum ~= head then
    ring = call('HGET', BOOK, name .. 'b')
    if not ring or #ring ~= n * 8 then return nil end
    local first = (newest + 1) % n
    local before_end = gone <= n - first and gone or n - first
    sum = sum - cells_sum(ring, first, before_end)
    ring = ring:sub(1, first * 8) .. repeated_text('\0', before_end * 8) .. ring:sub((first + before_end) * 8 + 1)
    if before_end < gone then
      sum = sum - cells_sum(ring, 0, gone - before_end)
      ring = repeated_text('\0', (gone - before_end) * 8) .. ring:sub((gone - before_end) * 8 + 1)
    end
  else
    ring = repeated_text('\0', n * 8)
  end
  if not (sum >= 0 and sum % 1 == 0) then return nil end
  local place = newest % n * 8
  return sum, ring:sub(1, place) .. quick_pack('<d', head) .. ring:sub(place + 9)
end

-- The seconds of a forecast, made when the first one is met.
local of_doubles, read_seconds, write_seconds, seconds_at

local function with_seconds()
  -- The form of so many numbers; a part of a longer one costs half of what making it does.
  function of_doubles(count)
    if count < 64 then return ('<dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd'):sub(1, count + 1) end
    return '<' .. repeated_text('d', count)
  end

  -- Amounts of seconds in a row, a number for each.
  function read_seconds(text, cells, from, count)
    local first = from % cells
    local before_end = count <= cells - first and count or cells - first
    local list = { quick_unpack(of_doubles(before_end), text, first * 8 + 1) }
    if before_end < count then
      local more = { quick_unpack(of_doubles(count - before_end), text) }
      for index = 1, count - before_end do list[before_end + index] = more[index] end
    end
    return list
  end

  function write_seconds(text, cells, from, count, amounts)
    local first = from % cells
    local before_end = count <= cells - first and count or cells - first
    if before_end == count then return text:sub(1, first * 8) .. amounts .. text:sub((first + count) * 8 + 1) end
    text = text:sub((count - before_end) * 8 + 1, first * 8) .. amounts:sub(1, before_end * 8)
    return amounts:sub(before_end * 8 + 1) .. text
  end

  -- The seconds as they are at a later one, and the sums behind and ahead of it. Nil: damage.
  function seconds_at(name, window, newest, past, ahead, second)
    local cells, gone = window + PLANNED, second - newest
    if past + ahead == 0 or gone > window + REACH then return repeated_text('\0', cells * 8), 0, 0 end
    local text = call('HGET', BOOK, name .. 's')
    if not text or #text ~= cells * 8 then return nil end
    if gone > 0 then
      local landing = gone < REACH and gone or REACH
      local lands, leaves = read_seconds(text, cells, newest + 1, landing), read_seconds(text, cells, newest - window, gone)
      for index = 1, landing do past, ahead = past + lands[index], ahead - lands[index] end
      for index = 1, gone do past = past - leaves[index] end
      if not (past >= 0 and ahead >= 0) then return nil end
      text = write_seconds(text, cells, newest - window, gone, repeated_text('\0', gone * 8))
    end
    return text, past, ahead
  end
end
