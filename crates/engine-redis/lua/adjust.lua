-- adjust: post a signed difference to a quota's period, once per id (L8, L16).
-- KEYS: the adjust's own, the subject. Arguments: id, account, period, difference, opening { measure, end } or nil, and
-- what is posted, as the journal names it; entry.

local id, name, period, delta, opening, posted = unpack(ARGS, 1, 6)
local applied = tonumber(call('GET', KEYS[6]) or -1)
if applied and applied >= 0 and applied + REMEMBER > steady then return answer(0) end
local account = want(KEYS[7], name)
fetch()
local row = account.row
if row and row[KIND] ~= QUOTA then refused('no_such_quota') end
if row and opening and opening[1] ~= row[MEASURE] then refused('shape') end
if not row and not opening then refused('no_such_quota') end
local newest = row and newest_period(row)
local ahead = not newest or row[newest] < period
if ahead and not opening then refused('no_such_quota') end
opened[account.key] = not row
account.row = row or new_row(opening[1], QUOTA)
if ahead then open_period(account.row, period, opening[2]) end
account.row[USED], account.dirty = steady, true
post(account, period, delta)
probe()
call('SET', KEYS[6], whole(steady), 'PX', whole(TOMB_TTL))
journal(id, 0, 2, 6, 0, { posted }, ARGV[2])
tick()
store()
return answer(1)
