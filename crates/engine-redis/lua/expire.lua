-- expire: end one reservation if it is due (L7). KEYS: the reservation. Argument: the claim.

local claim = ARGV[1]
local row = reservation(KEYS[3])
if not row then return answer({ 'unknown' }) end
if row[R_STATE] ~= LIVE_NOW then return answer({ 'ended', row[R_STATE] }) end
if steady < row[R_DUE] then return answer({ 'not_due' }) end
local legs = row[R_LEGS]
local found = accounts_of(legs)
fetch()
local sent = row[R_SENT] == 1
local posts, _, charges = effects(legs, found, { kind = sent and LAPSED or NEVER_SENT })
probe(true)
free(row, found, posts)
bury(KEYS[3], row, EXPIRED, posts)
if sent then journal(claim, 0, 3, row[R_ADMITTED], charges, row[R_CONTEXT]) end
tick()
store()
return answer({ 'expired', charges, row[R_CONTEXT], row[R_ADMITTED], row[R_SENT] })
