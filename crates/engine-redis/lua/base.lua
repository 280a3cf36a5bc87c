-- What every verb begins with: the state of the shard, and arithmetic that stays exact below 2^53.
--
-- A verb reads, decides, then writes; nothing after its first write can fail. Everything it may touch is in KEYS: the
-- book, due, what the verb itself names, and the journal last where it writes one. Integers only (L13); a number that is
-- not one, where ours should be, is damage: the verb stops before it has written anything.
--
-- The book is one hash per shard: `c` both clocks, `s` its state, `alarm of the book: …` (longer than what
-- belongs to an account), accounts by 16 bytes (subject, name) with their
-- older buckets or seconds in a field of their own, estimators by `e` and 8 bytes.

-- A leg as it comes.
const L_ACCOUNT, L_MEASURE, L_KIND, L_P1, L_P2, L_P3, L_PERIODS = 1, 2, 3, 4, 5, 6, 7
const L_BASE, L_PER, L_CAP, L_WORST, L_ESTIMATOR, L_REFUND, L_LIMITS = 8, 9, 10, 11, 12, 13, 14
-- A limit as it comes.
const M_ID, M_CEILING, M_HARD, M_SHADOW, M_COUNT, M_WORST, M_CHARGE = 1, 2, 3, 4, 5, 6, 7
-- A leg as a reservation keeps it.
const H_ACCOUNT, H_KIND, H_MEASURE, H_FLAGS, H_PLACE, H_BASE, H_PER = 1, 2, 3, 4, 5, 6, 7
const H_CAP, H_WORST, H_OUTPUT, H_HELD, H_DECIDED, H_CARRIED, H_HARD = 8, 9, 10, 11, 12, 13, 14
const AT_WORST, CHARGE, REFUND, SHADOWED = 1, 2, 4, 8

const NO_CEILING = 2 * AMOUNT_MAX

-- Why a limit has no room.
const TOO_LARGE, EXHAUSTED, SPENT, BUSY = 0, 1, 2, 3

-- A reservation as it is kept: live, or ended and how.
const R_STATE, R_ADMITTED, R_DUE, R_SENT, R_CONTEXT, R_LEARNERS, R_LEGS, R_MEMBER = 1, 2, 3, 4, 5, 6, 7, 8
const T_ENDED, T_COUNT, T_LEARNERS, T_QUOTAS = 3, 4, 5, 6
const LIVE_NOW, SETTLED, RELEASED, EXPIRED, CORRECTED, REBOOKED = 0, 1, 2, 3, 4, 5
-- A quota leg of a tombstone.
const Q_ACCOUNT, Q_LEG, Q_REQUESTS, Q_REFUND, Q_PERIOD, Q_CHARGED, Q_DECIDED = 1, 2, 3, 4, 5, 6, 7
-- How an attempt ends, as far as amounts are concerned.
const USED_, NEVER_SENT, FAILED, LAPSED, MOVED = 1, 2, 3, 4, 5

local floor, max, min, fmod = math.floor, math.max, math.min, math.fmod
local msgpack, from_msgpack = cmsgpack.pack, cmsgpack.unpack
local pack, from_packed, rep = struct.pack, struct.unpack, string.rep

const AMOUNT_MAX = 9007199254740991
const SECOND = 1000000
const REMEMBER = 1800 * SECOND
const PERIOD_KEPT = REMEMBER + 3600 * SECOND
-- A time, and a second, that never come.
const NEVER, NEVER_SECOND = AMOUNT_MAX, 9007199254

-- What is stored under our keys and is not ours.
local function damaged(what)
  error('TB-DAMAGED ' .. what, 0)
end

-- A command of ours that the book's rules refuse: kind and index, as the port names them.
local function refused(kind, index)
  error(string.format('TB-REFUSED %s %d', kind, index or 0), 0)
end

local function decode(text, what)
  local fine, value = pcall(from_msgpack, text)
  if not fine or type(value) ~= 'table' then damaged(what) end
  return value
end

-- Numbers of eight bytes each, to the end of a text.
local function numbers(text, from, what)
  local count = (#text - from + 1) / 8
  if count ~= floor(count) or count < 0 then damaged(what) end
  local list = { from_packed('<' .. rep('d', count), text, from) }
  list[count + 1] = nil
  for index = 1, count do
    if list[index] % 1 ~= 0 then damaged(what) end
  end
  return list
end

local function whole(n) return string.format('%.0f', n) end

-- ⌈amount / 1000⌉.
local function thousandth(amount)
  local rest = fmod(amount, 1000)
  return (amount - rest) / 1000 + (rest > 0 and 1 or 0)
end

-- ⌈(base + per_output × output) / 1000⌉.
local function amount_of(base, per_output, output)
  return thousandth(base + per_output * output)
end

local function div(a, b) return (a - fmod(a, b)) / b end

-- ⌊a × b / c⌋ and whether something is left, exact for a < 2^53 and b ≤ c < 2^37.
local function muldiv(a, b, c)
  local product = a * b
  if product <= AMOUNT_MAX then
    local left = product % c
    return (product - left) / c, left > 0
  end
  local quotient, rest = div(a, c) * b, fmod(a, c)
  local high, middle, low = floor(rest / 2 ^ 30), floor(rest / 2 ^ 15) % 2 ^ 15, rest % 2 ^ 15
  local part, left = 0, 0
  for _, digit in ipairs({ high, middle, low }) do
    local value = left * 2 ^ 15 + digit * b
    part, left = part * 2 ^ 15 + div(value, c), fmod(value, c)
  end
  return quotient + part, left > 0
end

local function muldiv_up(a, b, c)
  local quotient, left = muldiv(a, b, c)
  return left and quotient + 1 or quotient
end

-- Time: `now` addresses buckets and periods; the steady clock never goes back, lives and tombstones are measured on it.
told = told or call('HMGET', BOOK, 'c', 's')
if told[1] and #told[1] ~= 16 or told[2] and #told[2] < STATE_BYTES then damaged('clock or state') end
local clock = told[1] and numbers(told[1], 1, 'clock') or { 0, 0 }
local seen, behind = clock[1], clock[2]
local steady = max(now, seen) + behind

-- The shard's epoch, whether it is being rebuilt, and the server that opened it.
const STATE_BYTES = 9
local epoch, closed, run = 0, 0, nil
if told[2] then epoch, closed, run = from_packed('<dB', told[2]), told[2]:byte(9), told[2]:sub(10) end

-- What its gateway knows of the shard: the epoch it expects, negative where the verb may write while the shard is being
-- rebuilt, absent where nobody would rebuild it; then the server that answers. Nothing is written where data may be gone.
local expects = tonumber(ARGV[#ARGV - 1])
if expects then
  local loss
  if epoch == 0 or epoch < math.abs(expects) then
    loss = 'all'
  elseif run ~= ARGV[#ARGV] then
    loss = 'tail'
  elseif closed == 1 and epoch ~= -expects then
    loss = 'rebuilding'
  end
  if loss then return redis.error_reply('TB-LOST ' .. loss) end
end

-- What went wrong and has no answer of its own, by name; counted in the book when the verb writes.
local alarms = {}
local function alarm(name, count)
  if count > 0 then alarms[name] = (alarms[name] or 0) + count end
end

local function count_alarms()
  for name, count in pairs(alarms) do call('HINCRBY', BOOK, 'alarm of the book: ' .. name, whole(count)) end
  alarms = {}
end

-- A verb writes: both clocks move to its time.
local function tick()
  if now < seen then
    behind = behind + seen - now
    alarm('clock_steps_back', 1)
  end
  call('HSET', BOOK, 'c', pack('<dd', now, behind))
  count_alarms()
end

-- Every answer: epoch, now, and what the verb says.
local function answer(value)
  return { epoch, now, value }
end

local function flagged(flags, flag) return fmod(div(flags, flag), 2) == 1 end

-- Members of the due set at most `most`, oldest first.
local function due_now(most)
  return call('ZRANGEBYSCORE', DUE, '-inf', whole(steady), 'LIMIT', 0, most)
end
