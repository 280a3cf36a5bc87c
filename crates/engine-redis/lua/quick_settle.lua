-- settle of a reservation that the quick way wrote and nothing has changed since.

repeat
  local claim, how, landed, learn_output, has_entry, stale, at = quick_unpack('<c18BddBB', ARGV[1])
  if how ~= 1 or stale == 1 then break end
  local kept = call('GET', KEYS[3])
  if not kept or kept:byte() ~= 1 then break end
  local sent, count_demands, context_bytes, admitted, due, from = quick_unpack('<xBBHdd', kept)
  local door = { quick_unpack('<' .. repeated_text('dd', count_demands), kept, from) }
  local count, count_kinds, _, learned, member, names_at = quick_unpack('<xxxxxxxxxxxxxxxxxxxxxxxxBBBBBc0', kept, door[2 * count_demands + 1])
  local used_amounts = { quick_unpack('<' .. repeated_text('d', (#ARGV[1] - at + 1) / 8), ARGV[1], at) }
  if #used_amounts ~= count + 1 then break end
  local kinds_at = names_at
  local names = { quick_unpack('<' .. repeated_text('c9', 2 * learned) .. repeated_text('c16', count), kept, names_at + learned) }
  local first = 2 * learned
  local demands_at = names[first + count + 1]
  local legs_at = demands_at + DEMAND_BYTES * count_demands
  if #kept ~= legs_at - 1 + KIND_BYTES * count_kinds + LEG_BYTES * count + context_bytes then break end
  names[first + count + 1] = nil
  told, named = call('HMGET', BOOK, 'c', 's', unpack(names)), names
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

  -- Kinds, and the kind and demand of each leg; by place.
  local form = {
    quick_unpack('<' .. repeated_text(KIND_FORM, count_kinds) .. repeated_text('BBxxxxxxxx', count), kept, legs_at),
  }
  legs_at = 4 * count_kinds
  local lived = now > admitted and now - admitted or 0
  local sets = {
    'c', quick_pack('<dd', now, behind), nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
    nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
  }
  local set, overrun, any_over = 2, { nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil }, false
  local posts, parts = 0, {
    claim, 0, 1, admitted, now, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
  }
  for index = 1, count do
    local place, demand = 4 * form[legs_at + 2 * index - 1], form[legs_at + 2 * index]
    local shape, class, x, y = form[place - 3], form[place - 2], form[place - 1], form[place]
    local name, row, decided, used = names[first + index], told[2 + first + index], door[2 * demand], used_amounts[index]
    if not row or #row < SLOTS_BYTES or not (used <= AMOUNT_MAX) then
      odd = true
      break
    end
    local over = class ~= RATE_REQUESTS and class ~= QUOTA_REQUESTS and class ~= SLOTS and used > decided and used - decided or 0
    overrun[index], any_over = over, any_over or over > 0
    if class <= RATE_AMOUNTS then
      local rare = #row > RATE_BYTES and row:sub(RATE_BYTES + 1) or ''
      if #row ~= RATE_BYTES + #rare or rare ~= '' and #rare ~= RARE_BYTES then
        odd = true
        break
      end
      local had, live, version, mean, last, held, newest, sum, head, top = quick_unpack(RATE_ROW, row)
      if had ~= shape or (live + version + mean + last + held + newest + sum + head + top) % 1 ~= 0 then
        odd = true
        break
      end
      if class == RATE_AMOUNTS then
        version, held = version + 1, held - decided
        mean = mean == 0 and lived or (mean * 7 + lived * 3 - (mean * 7 + lived * 3) % 10) / 10
        if used > 0 then
          local bucket = (now - now % x) / x
          if bucket > newest then
            local ring
            sum, ring = turned(name, y, newest, sum, head, bucket)
            if not sum then
              odd = true
              break
            end
            if ring then
              set = set + 2
              sets[set - 1], sets[set] = name .. 'b', ring
            end
            newest, head = bucket, 0
          end
          if newest - bucket > 2 * y or sum + used > AMOUNT_MAX then
            odd = true
            break
          end
          sum, head, top = sum + used, head + used, newest
        end
      end
      row = quick_pack(RATE_ROW, had, live > 0 and live - 1 or 0, version, mean, steady, held, newest, sum, head, top) .. rare
    elseif class <= QUOTA_AMOUNTS then
      local had, live, version, mean, last = quick_unpack('<c12dddd', row)
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
      if starts ~= x or (live + version + mean + last + ends + held + posted) % 1 ~= 0 then
        odd = true
        break
      end
      local charge = decided
      if class == QUOTA_AMOUNTS then
        version, held, charge = version + 1, held - decided, used
        mean = mean == 0 and lived or (mean * 7 + lived * 3 - (mean * 7 + lived * 3) % 10) / 10
        posted = posted + used
        if posted > AMOUNT_MAX then
          odd = true
          break
        end
      end
      if charge > 0 then
        posts = posts + 1
        place = 3 * posts + 3
        parts[place], parts[place + 1], parts[place + 2] = name, starts, charge
      end
      live = live > 0 and live - 1 or 0
      if #row == QUOTA_BYTES then
        row = quick_pack('<c12dddddddd', had, live, version, mean, steady, starts, ends, posted, held)
      else
        row = quick_pack('<c12dddd', had, live, version, mean, steady) .. row:sub(45, #row - 32 - rare)
          .. quick_pack('<dddd', starts, ends, posted, held) .. row:sub(#row + 1 - rare)
      end
    elseif class == SLOTS then
      local had, live, version, mean, last, held = quick_unpack('<c12ddddd', row)
      if had ~= shape or #row ~= SLOTS_BYTES or (live + version + mean + last + held) % 1 ~= 0 then
        odd = true
        break
      end
      mean = mean == 0 and lived or (mean * 7 + lived * 3 - (mean * 7 + lived * 3) % 10) / 10
      row = quick_pack('<c12ddddd', had, live > 0 and live - 1 or 0, version + 1, mean, steady, held - decided)
    else
      local rare = #row > RATE_BYTES and row:sub(RATE_BYTES + 1) or ''
      if #row ~= RATE_BYTES + #rare or rare ~= '' and #rare ~= RARE_BYTES then
        odd = true
        break
      end
      local had, live, version, mean, last, none, newest, past, ahead, far = quick_unpack(RATE_ROW, row)
      if had ~= shape or (live + version + mean + last + none + newest + past + ahead + far) % 1 ~= 0 then
        odd = true
        break
      end
      -- What the second of the call's door gets: true input − estimated input.
      local base, per = quick_unpack('<xxxxxxxxxxdd', kept, demands_at + DEMAND_BYTES * (demand - 1))
      local input, output = base + 999 - (base + 999) % 1000, base + per * landed + 999
      input, output = input / 1000, (output - output % 1000) / 1000
      local difference = used - (output - input)
      difference = (difference > 0 and difference or 0) - input
      if difference ~= 0 then
        local second, text = (now - now % SECOND) / SECOND, nil
        place = (admitted - admitted % SECOND) / SECOND
        if second < newest and newest - second <= 2 * x then second = newest end
        if second >= newest then
          if not seconds_at then with_seconds() end
          if second - newest > x + REACH then far = second end
          text, past, ahead = seconds_at(name, x, newest, past, ahead, second)
        end
        if not text or past + ahead + used > AMOUNT_MAX or base + per * landed > AMOUNT_MAX - 1000 then
          odd = true
          break
        end
        newest = second
        if place <= newest and place >= newest - x then
          local there = quick_unpack('<d', text, place % (x + PLANNED) * 8 + 1)
          local change = difference < -there and -there or difference
          past = past + change
          if change > 0 and place > far then far = place end
          text = write_seconds(text, x + PLANNED, place, 1, quick_pack('<d', there + change))
        end
        set = set + 2
        sets[set - 1], sets[set] = name .. 's', text
      end
      row = quick_pack(RATE_ROW, had, live > 0 and live - 1 or 0, version, mean, steady, none, newest, past, ahead, far) .. rare
    end
    set = set + 2
    sets[set - 1], sets[set] = name, row
  end
  if odd then break end

  if learn_output >= 0 then
    local begun = set + 1
    for index = 1, first do
      local field, kind, n, m = names[index], kept:byte(kinds_at + (index - 1 - (index - 1) % 2) / 2), 0, 0
      if index % 2 == 1 or field ~= names[index - 1] then
        -- Learners may share one: what was learned just now counts.
        local stored, slot = told[2 + index], set + 1
        for known = begun, set, 2 do
          if sets[known] == field then stored, slot = sets[known + 1], known end
        end
        if stored then
          local known
          if #stored ~= ESTIMATOR_BYTES then
            odd = true
            break
          end
          known, n, m = quick_unpack('<Bdd', stored)
          if known ~= kind then n, m = 0, 0 end
        end
        n = n + 1
        if kind == 1 then
          local sample = learn_output * 1000
          if n == 1 then
            m = sample
          else
            local low, low_sample = m % 10, sample % 10
            local rest = low * 7 + low_sample * 3
            m = (m - low) / 10 * 7 + (sample - low_sample) / 10 * 3 + (rest - rest % 10) / 10
          end
        else
          local weight = (1024 - 1024 % n) / n
          if weight < 51 then weight = 51 end
          local change = (learn_output * 1000 - m) * weight
          m = m + (change - change % 1024) / 1024
        end
        if m % 1 ~= 0 then
          odd = true
          break
        end
        if slot > set then set = set + 2 end
        sets[slot], sets[slot + 1] = field, quick_pack('<Bddd', kind, n, m, steady)
      end
    end
  end
  if odd then break end

  local entry = quick_pack('<c18HBdd' .. repeated_text('c16dd', posts), unpack(parts, 1, 5 + 3 * posts))
  -- The journal is the first write that another type could stop; the due set is looked at before.
  call('ZCARD', DUE)
  call('XADD', KEYS[4], '*', 'e', entry, 'b', ARGV[2])
  call('ZREM', DUE, member)
  call('SET', KEYS[3], quick_pack('<BBddB', 2, 1, admitted, steady, count), 'PX', '3600000')
  call('HSET', BOOK, unpack(sets, 1, set))
  do
    return { epoch, now, entry, any_over and quick_pack('<' .. repeated_text('d', count), unpack(overrun, 1, count)) or '' }
  end
until true
