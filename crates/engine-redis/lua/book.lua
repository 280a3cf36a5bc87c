-- Reservations: live ones, their ends, and what is remembered of them.
--
-- One key for each (id, attempt). Live: 0, admitted, due, sent, context, learners, legs, its member in the due set. Ended:
-- how, admitted, ended, count of legs, and of an expired one learners and quota legs for the one correction (L8). An end
-- frees every hold and posts to what the reservation named (L5), in full (L4); requests were posted at the door and are
-- only ever given back (L6).
--
-- Three forms: what the quick way wrote (`quick_reserve.lua`), a plain tombstone, else an array in MessagePack.

const QUICK_FORM, TOMB_FORM = 1, 2
-- A tombstone's key outlives what it answers for, so that only the steady clock decides.
const TOMB_TTL = 2 * REMEMBER / 1000

-- A write that meets another type would stop halfway: what is written without having been read is looked at while nothing
-- is written yet.
local function probe(journals)
  call('ZCARD', DUE)
  if journals then call('XLEN', KEYS[#KEYS]) end
end

local function tomb_of(how, admitted, ended, count)
  return pack('<BBddB', TOMB_FORM, how, admitted, ended, count)
end

-- What the quick way wrote, as everything else reads it.
local function quick_record(text)
  local sent, count_demands, context_bytes, admitted, due, at = from_packed('<xBBHdd', text)
  local outputs, decided = {}, {}
  for index = 1, count_demands do outputs[index], decided[index], at = from_packed('<dd', text, at) end
  local count, _, learned, member
  local count_kinds
  count, count_kinds, _, learned, member, at = from_packed('<xxxxxxxxxxxxxxxxxxxxxxxxBBBBBc0', text, at)
  local learns, kinds, learners, names, demands, legs = {}, {}, {}, {}, {}, {}
  for index = 1, learned do learns[index], at = from_packed('<B', text, at) end
  for index = 1, learned do
    local own, prior
    own, prior, at = from_packed('<xc8xc8', text, at)
    learners[index] = { own, prior, learns[index] }
  end
  for index = 1, count do names[index], at = from_packed('<c16', text, at) end
  for index = 1, count_demands do
    local base, per, cap, worst
    base, per, cap, worst, at = from_packed('<xxxxxxxxxxdddd', text, at)
    demands[index] = { base, per, cap, worst }
  end
  for index = 1, count_kinds do
    local kind, measure, width, flags, start
    kind, measure, width, flags, start, at = from_packed('<BBxxdxBdxxxxxxxx', text, at)
    kinds[index] = { kind, measure, width, flags, start }
  end
  for index = 1, count do
    local shared, of, hard = kinds[text:byte(at)], text:byte(at + 1), from_packed('<d', text, at + 10 * (count - index + 1) + 8 * (index - 1))
    at = at + 10
    local kind, measure, width, flags, start = unpack(shared, 1, 5)
    local demand, place = demands[of], 0
    if kind == RATE then place = div(admitted, width) elseif kind == FORECAST then place = div(admitted, SECOND)
    elseif kind == QUOTA then place = start end
    local held = (measure == REQUESTS or kind == FORECAST) and 0 or decided[of]
    legs[index] = {
      names[index], kind, measure, flags, place, demand[1], demand[2], demand[3], demand[4], outputs[of], held, decided[of], 0, hard,
    }
  end
  local context = string.sub(text, at + 8 * count)
  if #context ~= context_bytes then damaged('reservation') end
  return { LIVE_NOW, admitted, due, sent, context, learners, legs, member }
end

local function record_of(text)
  local form = text:byte()
  if form == QUICK_FORM then
    local fine, row = pcall(quick_record, text)
    if not fine then damaged('reservation') end
    return row
  end
  if form == TOMB_FORM then
    if #text ~= 19 then damaged('reservation') end
    return { from_packed('<xBddB', text) }
  end
  local row = decode(text, 'reservation')
  if not row[R_STATE] or #row < 4 then damaged('reservation') end
  return row
end

-- A reservation as it is kept; nil if unknown or forgotten.
local function reservation(key)
  local stored = call('GET', key)
  local row = stored and record_of(stored)
  if not row or row[R_STATE] ~= LIVE_NOW and row[T_ENDED] + REMEMBER <= steady then return nil end
  return row
end

-- The accounts of a reservation's legs.
local function accounts_of(legs)
  local found = {}
  for index, leg in ipairs(legs) do found[index] = want(leg[H_ACCOUNT]) end
  return found
end

-- Ended calls on their way to the journal: which attempt, and what it posted to quotas.
local function journal(claim, seq, source, admitted, posted, body)
  local parts = { pack('<c18HBdd', claim, seq, source, admitted, now) }
  for index, row in ipairs(posted) do parts[index + 1] = pack('<c16dd', row[1], row[2], row[3]) end
  call('XADD', KEYS[#KEYS], '*', 'e', table.concat(parts), 'b', body)
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

-- What the second of a call's door gets when the truth is known: true input − estimated input.
local function input_difference(held, used, landed)
  local estimated = thousandth(held[H_BASE])
  local output = amount_of(held[H_BASE], held[H_PER], landed) - estimated
  return max((used or 0) - output, 0) - estimated
end
