-- expire: end one reservation if it is due (L7). KEYS: the reservation, then subjects. Arguments: id, attempt.

local id, attempt = unpack(ARGS, 1, 2)
local row = reservation(KEYS[6])
if not row then return answer({ 'unknown' }) end
if row[R_STATE] ~= LIVE_NOW then return answer({ 'ended', row[R_STATE] }) end
if steady < row[R_DUE] then return answer({ 'not_due' }) end
local legs = row[R_LEGS]
local found = accounts_of(legs, subject_keys(7))
fetch()
local sent = row[R_SENT] == 1
local posts, _, charges = effects(legs, found, { kind = sent and LAPSED or NEVER_SENT })
probe()
free(row, found, posts)
bury(KEYS[6], id, attempt, row, EXPIRED, posts)
if sent then journal(id, attempt, 0, 3, row[R_ADMITTED], charges, row[R_CONTEXT]) end
tick()
store()
return answer({ 'expired', charges, row[R_CONTEXT], row[R_ADMITTED], row[R_SENT] })
