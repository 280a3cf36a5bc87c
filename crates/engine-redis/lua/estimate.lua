-- Estimators: what calls of one key and model have used. Fields of the book, so that every verb can name them: a settle
-- knows the accounts of its call, not its estimators.
--
-- A field is kind, n, m, used, samples; names and rules are those of the pure ledger's `estimate`.

const EMA, RECENT, P95, FORECAST_MEAN = 1, 2, 3, 4
const SAMPLES, YOUNG, MINUTES = 100, 5, 10
const E_KIND, E_N, E_M, E_USED, E_SAMPLES = 1, 2, 3, 4, 5

local estimates = {}

-- Without samples an estimator is a byte and three numbers, else an array in MessagePack.
const PLAIN_BYTES = 25

local function estimator_of(text)
  if #text ~= PLAIN_BYTES or text:byte() > FORECAST_MEAN then return decode(text, 'estimator') end
  local list = numbers(text, 2, 'estimator')
  return { text:byte(), list[1], list[2], list[3], {} }
end

local function text_of_estimator(row)
  if #row[E_SAMPLES] > 0 then return msgpack(row) end
  return pack('<Bddd', row[E_KIND], row[E_N], row[E_M], row[E_USED])
end

local function estimate_of(id)
  if estimates[id] == nil then
    local stored = read['e' .. id]
    if stored == nil then stored = call('HGET', BOOK, 'e' .. id) end
    estimates[id] = stored and estimator_of(stored) or false
  end
  return estimates[id]
end

local function minute() return div(steady, 60 * SECOND) end

local guess, learn, outgrown, store_estimates

-- What is expected: for those who decide.
local function with_guesses()
  if guess then return end

  local function guess_of(row)
    local kind = row[E_KIND]
    if kind == EMA then return row[E_N] > 0 and div(2 * row[E_M], 1000) or nil end
    if kind == FORECAST_MEAN then return (row[E_M] > 0 or row[E_N] > 0) and div(2 * row[E_M], 1000) or nil end
    local samples = row[E_SAMPLES]
    if kind == P95 then
      local count = #samples
      if count == 0 then return nil end
      if count < YOUNG then
        local sum = 0
        for _, sample in ipairs(samples) do sum = sum + sample end
        return div(sum * 3, 2 * count)
      end
      local sorted = {}
      for index, sample in ipairs(samples) do sorted[index] = sample end
      table.sort(sorted)
      return sorted[div(count * 95 + 99, 100)]
    end
    local outputs, calls, at = 0, 0, minute()
    for index = 1, #samples - 2, 3 do
      if samples[index] >= at - MINUTES and samples[index] < at then
        outputs, calls = outputs + samples[index + 1], calls + samples[index + 2]
      end
    end
    return calls > 0 and div(outputs, calls) or nil
  end

  -- What the call's own estimator expects, or its prior while that is young.
  function guess(kind, own, prior)
    local row = estimate_of(own)
    if row and row[E_KIND] == kind and row[E_N] > 0 then
      local expected = guess_of(row)
      if expected then return expected end
    end
    row = estimate_of(prior)
    return row and row[E_KIND] == kind and guess_of(row) or nil
  end
end

-- What was used: for those who end a call.
local function with_learning()
  if learn then return end

  -- m + ⌊(sample − m) × w / 1024⌋.
  local function blended(row, output, n)
    local w = max(div(1024, max(n, 1)), 51)
    return row[E_M] + floor((output * 1000 - row[E_M]) * w / 1024)
  end

  local function learn_one(row, output)
    row[E_N] = row[E_N] + 1
    local kind, samples = row[E_KIND], row[E_SAMPLES]
    if kind == EMA then
      local sample, m = output * 1000, row[E_M]
      row[E_M] = row[E_N] == 1 and sample
        or div(m, 10) * 7 + div(sample, 10) * 3 + div(fmod(m, 10) * 7 + fmod(sample, 10) * 3, 10)
    elseif kind == FORECAST_MEAN then
      row[E_M] = blended(row, output, row[E_N])
    elseif kind == P95 then
      if #samples >= SAMPLES then table.remove(samples, 1) end
      samples[#samples + 1] = output
    else
      local at = minute()
      if #samples == 0 or samples[#samples - 2] < at then
        while #samples > 0 and at - samples[1] > MINUTES do
          for _ = 1, 3 do table.remove(samples, 1) end
        end
        for _, value in ipairs({ at, 0, 0 }) do samples[#samples + 1] = value end
      end
      samples[#samples - 1] = min(samples[#samples - 1] + output, AMOUNT_MAX)
      samples[#samples] = samples[#samples] + 1
    end
  end

  local changed = {}

  local function change(id, kind, how)
    local row = estimate_of(id)
    if not row or row[E_KIND] ~= kind then row = { kind, 0, 0, steady, {} } end
    row[E_USED] = steady
    how(row)
    estimates[id], changed[id] = row, true
  end

  local function each_learner(learners, how)
    for _, learner in ipairs(learners) do
      local own, prior, kind = learner[1], learner[2], learner[3]
      change(own, kind, how)
      if prior ~= own then change(prior, kind, how) end
    end
  end

  function learn(learners, output)
    each_learner(learners, function(row) learn_one(row, output) end)
  end

  -- A stream outgrew its forecast: it moves the mean at once, and is no sample yet.
  function outgrown(learners, output)
    for _, learner in ipairs(learners) do
      if learner[3] == FORECAST_MEAN then
        each_learner({ learner }, function(row) row[E_M] = blended(row, output, row[E_N]) end)
      end
    end
  end

  function store_estimates()
    local sets = {}
    for id in pairs(changed) do sets[#sets + 1], sets[#sets + 2] = 'e' .. id, text_of_estimator(estimates[id]) end
    if #sets > 0 then call('HSET', BOOK, unpack(sets)) end
  end
end
