-- progress: what a gateway's streams really did replaces what was planned for them; each batch once.
-- Arguments: batches of gateway, account, number, first second, differences.

local batches = from_msgpack(ARGV[1])
for _, batch in ipairs(batches) do want(batch[2]) end
fetch()
local function magnitude(deltas)
  local sum = 0
  for _, delta in ipairs(deltas) do sum = min(sum + (delta < 0 and -delta or delta), AMOUNT_MAX) end
  return sum
end
local fresh, last = {}, {}
for _, batch in ipairs(batches) do
  local gateway, seq, deltas = batch[1], batch[3], batch[5]
  local account = want(batch[2])
  local id = account.name .. gateway
  if not account.row or account.row[KIND] ~= FORECAST then
    alarm('progress_outside', magnitude(deltas))
  elseif last[id] and last[id] >= seq or not is_new_batch(account, gateway, seq) then
    alarm('progress_repeated', 1)
    last[id] = max(last[id] or seq, seq)
  else
    last[id] = seq
    fresh[#fresh + 1] = { account, batch }
  end
end
if #fresh == 0 then return answer({}) end
for _, one in ipairs(fresh) do
  local account, batch = one[1], one[2]
  local base, deltas = batch[4], batch[5]
  account.row[USED], account.dirty = steady, true
  track_advance(account)
  for index, delta in ipairs(deltas) do
    if delta ~= 0 then
      local second = base + index - 1
      local inside = kept(account.row, second)
      local left = track_add(account, second, delta)
      local name = not inside and 'progress_outside' or delta < 0 and 'progress_below' or 'saturated'
      alarm(name, name == 'saturated' and min(left, 1) or left)
    end
  end
  heard(account, batch[1], batch[3])
end
tick()
store()
return answer({})
