-- One step of the drift check (L10): are some accounts the sums of their live holds?
-- KEYS: reservations. Arguments: accounts. Everything live that touches one of their subjects has to be declared, or the
-- answer is `again`.

local declared, subjects, sums, found = {}, {}, {}, {}
for index = 3, #KEYS do declared[KEYS[index]] = true end
for _, name in ipairs(from_msgpack(ARGV[1])) do
  want(name)
  subjects[string.sub(name, 1, 8)] = true
end
local function hex(text)
  return (string.gsub(text, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end
local keys = string.sub(BOOK, 1, -2) .. 'r:'
for _, member in ipairs(call('ZRANGE', DUE, 0, -1)) do
  local touches = false
  for at = 19, #member - 7, 8 do touches = touches or subjects[string.sub(member, at, at + 7)] end
  local low, high = string.byte(member, 17, 18)
  if touches and not declared[keys .. hex(string.sub(member, 1, 16)) .. ':' .. whole(low + 256 * high)] then return answer({ 'again' }) end
end
for index = 3, #KEYS do
  local row = reservation(KEYS[index])
  if row and row[R_STATE] == LIVE_NOW then
    for _, leg in ipairs(row[R_LEGS]) do
      local id = leg[H_ACCOUNT] .. whole(leg[H_KIND] == QUOTA and leg[H_PLACE] or 0)
      sums[id] = (sums[id] or 0) + leg[H_HELD]
    end
  end
end
local function compare(name, place, held, version)
  local sum = sums[name .. whole(place)] or 0
  if sum ~= held then found[#found + 1] = { name, place, held, sum, version } end
end
fetch()
for _, account in ipairs(wanted) do
  local row = account.row
  if row and row[KIND] == QUOTA then
    for at = PERIODS, #row - 3, 4 do compare(account.name, row[at], row[at + HELD_], row[VERSION]) end
  elseif row and row[KIND] ~= FORECAST then
    compare(account.name, 0, row[HELD], row[VERSION])
  end
end
return answer({ 'checked', found })
