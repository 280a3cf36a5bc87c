-- show: a reservation for people: its fields in their order, ids in hexadecimal digits. KEYS: the reservation.

local stored = call('GET', KEYS[3])
if not stored then return answer({}) end
local function shown(value)
  if type(value) == 'number' then return whole(value) end
  if type(value) == 'string' then
    return '"' .. string.gsub(value, '.', function(byte) return string.format('%02x', string.byte(byte)) end) .. '"'
  end
  if type(value) ~= 'table' then return tostring(value) end
  local parts = {}
  for index, part in ipairs(value) do parts[index] = shown(part) end
  return '[' .. table.concat(parts, ', ') .. ']'
end
local names = { 'state', 'admitted', 'due', 'sent', 'context', 'learners', 'legs', 'member' }
local row = record_of(stored)
if row[R_STATE] ~= LIVE_NOW then names = { 'ended', 'admitted', 'at', 'legs', 'learners', 'quotas' } end
local said = {}
for index, part in ipairs(row) do said[index] = names[index] .. ' ' .. shown(part) end
return answer(said)
