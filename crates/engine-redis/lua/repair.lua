-- repair: set one account's held to the sum that was confirmed, if its version is still the one seen (L10).
-- Arguments: account, period, version, sum.

local name, period, version, sum = unpack(from_msgpack(ARGV[1]), 1, 4)
local account = want(name)
fetch()
if not account.row or account.row[VERSION] ~= version then return answer(0) end
hold(account, period, sum - held_of(account.row, period))
account.dirty = true
tick()
store()
return answer(1)
