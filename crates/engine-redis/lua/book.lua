-- Reservations: live ones, their ends, and what is remembered of them.
--
-- One key for each (id, attempt). Live: 0, admitted, due, sent, context, learners, legs. Ended: how, admitted, ended, legs,
-- and of an expired one learners and quota legs for the one correction (L8). An end frees every hold and posts to what
-- the reservation named (L5), in full (L4); requests were posted at the door and are only ever given back (L6).

-- A tombstone's key outlives what it answers for, so that only the steady clock decides.
const TOMB_TTL = 2 * REMEMBER / 1000

-- A write that meets another type would stop halfway: what is written without having been read is looked at while nothing
-- is written yet.
local function probe()
  call('ZCARD', DUE)
  call('XLEN', JOURNAL)
  call('SCARD', SUBJECTS)
end

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

-- What the second of a call's door gets when the truth is known: true input − estimated input.
local function input_difference(held, used, landed)
  local estimated = thousandth(held[H_BASE])
  local output = amount_of(held[H_BASE], held[H_PER], landed) - estimated
  return max((used or 0) - output, 0) - estimated
end
