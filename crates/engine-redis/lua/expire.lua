-- expire: end one reservation if it is due (L7). KEYS: the reservation. Arguments: the claim; an entry, or nothing: with one a
-- reservation that was sent ends now, due or not, and the entry stands for its context.

local claim, entry = ARGV[1], ARGV[2]
local row = reservation(KEYS[3])
if not row then return answer({ 'unknown' }) end
if row[R_STATE] ~= LIVE_NOW then return answer({ 'ended', row[R_STATE] }) end
local sent = row[R_SENT] == 1
local early = entry ~= '' and sent
if steady < row[R_DUE] and not early then return answer({ 'not_due' }) end
local legs = row[R_LEGS]
local found = accounts_of(legs)
fetch()
local posts, _, charges = effects(legs, found, { kind = sent and LAPSED or NEVER_SENT })
probe(true)
free(row, found, posts)
bury(KEYS[3], row, EXPIRED, posts)
if sent then journal(claim, 0, 3, row[R_ADMITTED], charges, early and entry or row[R_CONTEXT]) end
tick()
store()
return answer({ 'expired', charges, row[R_CONTEXT], row[R_ADMITTED], row[R_SENT] })
