-- One step of the drift check (L10): are the accounts of some subjects the sums of their live holds?
-- KEYS: reservations, then subjects. Arguments: how many reservations. Everything live that touches one of the subjects has
-- to be declared, or the answer is `again`.

local count = ARGS[1]
local declared, checked = {}, {}
for index = 6, 5 + count do declared[KEYS[index]] = true end
for index = 6 + count, #KEYS do checked[subject_of(KEYS[index])] = KEYS[index] end
for _, member in ipairs(call('ZRANGE', DUE, 0, -1)) do
  local id, attempt, subjects = string.match(member, '^(%x+):(%d+):(.*)$')
  for subject in string.gmatch(subjects or '', '%x+') do
    if checked[subject] and not declared[string.sub(META, 1, -5) .. 'r:' .. id .. ':' .. attempt] then return answer({ 'again' }) end
  end
end
local sums, holds = {}, {}
for index = 6, 5 + count do
  local row = reservation(KEYS[index])
  if row and row[R_STATE] == LIVE_NOW then
    for _, leg in ipairs(row[R_LEGS]) do
      if checked[leg[H_SUBJECT]] then
        local place = leg[H_KIND] == QUOTA and leg[H_PLACE] or 0
        local id = leg[H_SUBJECT] .. leg[H_NAME] .. whole(place)
        sums[id] = (sums[id] or 0) + leg[H_HELD]
      end
    end
  end
end
local found = {}
local function compare(subject, name, place, held, version)
  local sum = sums[subject .. name .. whole(place)] or 0
  if sum ~= held then found[#found + 1] = { subject, name, place, held, sum, version } end
end
for subject, key in pairs(checked) do
  local fields = call('HGETALL', key)
  for index = 1, #fields, 2 do
    if #fields[index] == 16 then
      local row, name = decode(fields[index + 1], 'account'), fields[index]
      if row[KIND] == QUOTA then
        for at = PERIODS, #row - 3, 4 do compare(subject, name, row[at], row[at + HELD_], row[VERSION]) end
      elseif row[KIND] ~= FORECAST then
        compare(subject, name, 0, row[HELD], row[VERSION])
      end
    end
  end
end
return answer({ 'checked', found })
