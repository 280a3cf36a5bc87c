-- reserve where every account is open and every limit has room.

repeat
  local asked = ARGV[1]
  if asked == '' then break end
  if call('GET', KEYS[3]) then break end
  local life, ttft, pace, count, count_kinds, count_demands, learned, member, at = quick_unpack('<dddBBBBBc0', asked)
  -- All that follows at once: fields to read, demands, kinds, legs; by place.
  local form = {
    quick_unpack('<' .. repeated_text('c9', 2 * learned) .. repeated_text('c16', count) .. repeated_text(DEMAND_FORM, count_demands)
      .. repeated_text(KIND_FORM, count_kinds) .. repeated_text('BBd', count), asked, at + learned),
  }
  local first, fields = 2 * learned, 2 * learned + count
  local kinds_at, legs_at = fields + 7 * count_demands, fields + 7 * count_demands + 4 * count_kinds
  told, named = call('HMGET', BOOK, 'c', 's', unpack(form, 1, fields)), form
  local clock = told[1]
  if not clock or #clock ~= 16 then break end
  local state, expects, epoch = told[2], ARGV[#ARGV - 1], 0
  if state then
    if #state < 9 then break end
    epoch = quick_unpack('<d', state)
  end
  if expects ~= '' and (epoch == 0 or not (epoch >= math.abs(expects)) or state:sub(9) ~= '\0' .. ARGV[#ARGV]) then break end
  local seen, behind = quick_unpack('<dd', clock)
  if not (now >= seen and behind % 1 == 0) then break end
  local steady = now + behind
  local odd = false

  -- What the estimators expect.
  local guesses = { nil, nil }
  for index = 1, learned do
    local kind, own, prior = asked:byte(at + index - 1), told[2 * index + 1], told[2 * index + 2]
    if own and #own ~= ESTIMATOR_BYTES or prior and #prior ~= ESTIMATOR_BYTES then
      odd = true
      break
    end
    local known, n, m = 0, 0, 0
    if own then known, n, m = quick_unpack('<Bdd', own) end
    if known ~= kind or n == 0 then
      known, n, m = 0, 0, 0
      if prior then known, n, m = quick_unpack('<Bdd', prior) end
      if known ~= kind or n == 0 and (kind ~= 4 or m == 0) then m = nil end
    end
    guesses[index] = m and (2 * m - 2 * m % 1000) / 1000 or false
  end
  if odd then break end

  -- What the call demands, once for all legs that demand the same: output and amount take their places in the form.
  local reply, parts = {
    nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
    nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
    nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
  }, { nil, nil, nil, nil, nil, nil, nil, nil }
  for index = 1, count_demands do
    local place = fields + 7 * index
    local estimator, output, base, cap, worst = form[place - 6], form[place - 4], form[place - 3], form[place - 1], form[place]
    if estimator > 0 then output = guesses[estimator] or output end
    if output > cap then output = cap end
    local amount = base + form[place - 2] * output
    local rest = amount % 1000
    amount = (amount - rest) / 1000
    if rest > 0 then amount = amount + 1 end
    if form[place - 5] == 1 and worst > amount then amount = worst end
    if not (amount > 0 and amount <= AMOUNT_MAX) then odd = true end
    form[place - 4], form[place], reply[index] = output, amount, output
    parts[2 * index - 1], parts[2 * index] = output, amount
  end
  if odd then break end

  local sets = {
    'c', quick_pack('<dd', now, behind), nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
    nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
  }
  local said, set = count_demands, 2
  -- How the last forecast's demand lands.
  local flowing, landed, last, before, input
  for index = 1, count do
    local place = legs_at + 3 * index
    local demand, least = fields + 7 * form[place - 1], form[place]
    place = kinds_at + 4 * form[place - 2]
    local shape, class, x, y = form[place - 3], form[place - 2], form[place - 1], form[place]
    local name, row, amount = form[first + index], told[2 + first + index], form[demand]
    if not row or #row < SLOTS_BYTES then
      odd = true
      break
    end
    if class <= RATE_AMOUNTS then
      local rare = #row > RATE_BYTES and row:sub(RATE_BYTES + 1) or ''
      if #row ~= RATE_BYTES + #rare or rare ~= '' and #rare ~= RARE_BYTES then
        odd = true
        break
      end
      local had, live, version, mean, used, held, newest, sum, head, top = quick_unpack(RATE_ROW, row)
      local bucket, posted, ring = (now - now % x) / x, sum, nil
      if bucket > newest then posted, ring = turned(name, y, newest, sum, head, bucket) end
      if had ~= shape or bucket < newest or not posted or held < 0 or not (posted + held + amount <= least)
        or (live + version + mean + used + held + newest + sum + head + top) % 1 ~= 0 then
        odd = true
        break
      end
      if class == RATE_REQUESTS then
        if bucket > newest then
          head = 0
          if ring then
            set = set + 2
            sets[set - 1], sets[set] = name .. 'b', ring
          end
        end
        newest, sum, head, top = bucket, posted + amount, head + amount, bucket
        posted = sum
      else
        version, held = version + 1, held + amount
      end
      reply[said + 1], reply[said + 2] = posted, held
      row = quick_pack(RATE_ROW, had, live + 1, version, mean, steady, held, newest, sum, head, top) .. rare
    elseif class <= QUOTA_AMOUNTS then
      local had, live, version, mean, used = quick_unpack('<c12dddd', row)
      if had ~= shape or #row < QUOTA_BYTES then
        odd = true
        break
      end
      local rare = (#row - SLOTS_BYTES) % 32 == 16 and RARE_BYTES or 0
      if (#row - rare - QUOTA_BYTES) % 32 ~= 0 then
        odd = true
        break
      end
      local starts, ends, posted, held = quick_unpack('<dddd', row, #row - 31 - rare)
      if starts ~= x or now < x * SECOND or now >= y * SECOND or held < 0 or not (posted + held + amount <= least)
        or (live + version + mean + used + ends + held + posted) % 1 ~= 0 then
        odd = true
        break
      end
      if class == QUOTA_REQUESTS then
        posted = posted + amount
      else
        version, held = version + 1, held + amount
      end
      reply[said + 1], reply[said + 2] = posted, held
      if #row == QUOTA_BYTES then
        row = quick_pack('<c12dddddddd', had, live + 1, version, mean, steady, starts, ends, posted, held)
      else
        row = quick_pack('<c12dddd', had, live + 1, version, mean, steady) .. row:sub(45, #row - 32 - rare)
          .. quick_pack('<dddd', starts, ends, posted, held) .. row:sub(#row + 1 - rare)
      end
    elseif class == SLOTS then
      local had, live, version, mean, used, held = quick_unpack('<c12ddddd', row)
      if had ~= shape or #row ~= SLOTS_BYTES or held < 0 or not (held + amount <= least)
        or (live + version + mean + used + held) % 1 ~= 0 then
        odd = true
        break
      end
      held = held + amount
      reply[said + 1], reply[said + 2] = 0, held
      row = quick_pack('<c12ddddd', had, live + 1, version + 1, mean, steady, held)
    else
      -- A forecast: room is clear where all that lies behind and ahead would fit into one window with the call. Where it
      -- would not, every window to come is looked at.
      local rare = #row > RATE_BYTES and row:sub(RATE_BYTES + 1) or ''
      if #row ~= RATE_BYTES + #rare or rare ~= '' and #rare ~= RARE_BYTES then
        odd = true
        break
      end
      local had, live, version, mean, used, none, newest, past, ahead, far = quick_unpack(RATE_ROW, row)
      local second, left, text = (now - now % SECOND) / SECOND, SECOND - now % SECOND, nil
      local most = least - (least * 10 - least * 10 % 1024) / 1024
      if newest > 0 and second >= newest and had == shape and amount <= most
        and (live + version + mean + used + none + newest + past + ahead + far) % 1 == 0 then
        if not seconds_at then with_seconds() end
        text, past, ahead = seconds_at(name, x, newest, past, ahead, second)
      end
      if not text then
        odd = true
        break
      end
      -- How it lands: input now, output by the end of each second to come.
      local cells = x + PLANNED
      if flowing ~= demand then
        local base, per, output = form[demand - 3], form[demand - 2], form[demand - 4]
        input = base % 1000 == 0 and base / 1000 or (base - base % 1000) / 1000 + 1
        local pace_ = pace < 1000 and 1000 or pace > 2000000 and 2000000 or pace
        flowing, landed, last, before = demand, { input, nil, nil, nil }, 0, 0
        if per > 0 and output > 0 then
          local streamed = 0
          last = -1
          while streamed < output and last < PLANNED - 1 do
            last = last + 1
            local time = left + last * SECOND - ttft
            streamed = time > 0 and (time - time % pace_) / pace_ or 0
            if streamed > output then streamed = output end
            local thousandths = base + per * streamed
            local by = (thousandths - thousandths % 1000) / 1000 - input
            if thousandths % 1000 > 0 then by = by + 1 end
            landed[last + 1] = by - before
            before = by
          end
          landed[1] = landed[1] + input
        end
      end
      if second + last > far then far = second + last end
      local stop = far - second < REACH and far - second or REACH - 1
      local leaves, near = read_seconds(text, cells, second - x, stop + 2), read_seconds(text, cells, second, stop + 2)
      if past + ahead + amount > most then
        -- With all of the call that has landed by the end of each window, as if nothing of it left one.
        local sum, added = past - leaves[1], 0
        for step = 1, stop + 1 do
          local oldest = leaves[step]
          added = added + (landed[step] or 0)
          if oldest > 0 and y == 0 and left < SECOND then
            local product, kept = oldest * left, oldest - (sum + oldest - (sum + oldest) % FORGOTTEN) / FORGOTTEN
            if product > AMOUNT_MAX then odd = true end
            oldest = (product - product % SECOND) / SECOND
            if product % SECOND > 0 then oldest = oldest + 1 end
            if kept > oldest then oldest = kept end
          end
          if sum + oldest + added > most then
            odd = true
            break
          end
          sum = sum + near[step + 1] - leaves[step + 1]
        end
        if odd then break end
      end
      for index = 1, last + 1 do near[index] = near[index] + landed[index] end
      for index = x + 1, stop + 2 do leaves[index] = near[index - x] end
      past, ahead = past + landed[1], ahead + before + input - landed[1]
      text = write_seconds(text, cells, second, last + 1, quick_pack(of_doubles(last + 1), unpack(near, 1, last + 1)))
      -- The fullest of the windows that end with each second to come, and the last second that holds something.
      local sum, fullest, current = past - leaves[1], 0, nil
      for step = 1, stop + 1 do
        local oldest, existing = leaves[step], sum
        if oldest > 0 then
          local inside = oldest
          if y == 0 and left < SECOND then
            local product, kept = oldest * left, sum + oldest
            inside = (product - product % SECOND) / SECOND
            if product % SECOND > 0 then inside = inside + 1 end
            kept = oldest - (kept - kept % FORGOTTEN) / FORGOTTEN
            if kept > inside then inside = kept end
            if product > AMOUNT_MAX then odd = true end
          end
          existing = sum + inside
        end
        current = current or existing
        if existing > fullest then fullest = existing end
        sum = sum + near[step + 1] - leaves[step + 1]
      end
      local final = stop + 1
      while final > 0 and near[final + 1] == 0 do final = final - 1 end
      if final == 0 and near[1] == 0 then odd = true end
      if odd then break end
      set = set + 2
      sets[set - 1], sets[set] = name .. 's', text
      reply[said + 1], reply[said + 2], reply[said + 3] = current, fullest - current, second + final
      said = said + 1
      row = quick_pack(RATE_ROW, had, live + 1, version, mean, steady, none, second, past, ahead, far) .. rare
    end
    said, set = said + 2, set + 2
    sets[set - 1], sets[set] = name, row
  end
  if odd then break end

  local due = steady + life
  -- The first write is the one that another type could stop.
  call('ZADD', DUE, string.format('%.0f', due), member)
  local context = ARGV[2]
  local door = quick_pack('<BBBHdd' .. repeated_text('dd', count_demands), 1, 0, count_demands, #context, now, due, unpack(parts, 1, 2 * count_demands))
  call('SET', KEYS[3], door .. asked .. context)
  call('HSET', BOOK, unpack(sets, 1, set))
  do return { epoch, now, quick_pack('<' .. repeated_text('d', said), unpack(reply, 1, said)) } end
until true
