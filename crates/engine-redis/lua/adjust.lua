-- adjust: post a signed difference to a quota's period, once per id (L8, L16).
-- KEYS: the adjust's own. Arguments: account, period, difference, opening { measure, end } or nil; its id as a claim; entry.

local name, period, delta, opening = unpack(from_msgpack(ARGV[1]), 1, 4)
local applied = tonumber(call('GET', KEYS[3]) or -1)
if applied and applied >= 0 and applied + REMEMBER > steady then return answer(0) end
local account = want(name)
fetch()
local row = account.row
if row and row[KIND] ~= QUOTA then refused('no_such_quota') end
if row and opening and opening[1] ~= row[MEASURE] then refused('shape') end
if not row and not opening then refused('no_such_quota') end
local newest = row and newest_period(row)
local ahead = not newest or row[newest] < period
if ahead and not opening then refused('no_such_quota') end
account.row = row or new_row(opening[1], QUOTA)
if ahead then open_period(account.row, period, opening[2]) end
account.row[USED], account.dirty = steady, true
post(account, period, delta)
probe(true)
call('SET', KEYS[3], whole(steady), 'PX', whole(TOMB_TTL))
journal(ARGV[2], 2, 6, 0, { { name, period, delta } }, ARGV[3])
tick()
store()
return answer(1)
