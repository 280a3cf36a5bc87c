-- rebook: end attempt n and decide attempt n + 1 in one step (L18). A denial, a recalendar or a conflict writes nothing.
-- KEYS: attempt n + 1, attempt n, then subjects of both. Arguments: as reserve, then n, actual per leg of n or false,
-- landed, whether there is an entry; context, entry.

local id, attempt, life, profile, legs, ended, actual, landed, has_entry = unpack(ARGS, 1, 9)
asked_legs = legs
local keys = subject_keys(8)
local old = reservation(KEYS[7])
local live = old and old[R_STATE] == LIVE_NOW
local found = live and accounts_of(old[R_LEGS], keys) or {}
for _, leg in ipairs(legs) do want(KEYS[leg[L_KEY]], leg[L_NAME]) end
fetch()
local known = attempt > ended and repeated(reservation(KEYS[6]), legs)
if known then return answer({ known, known[1] == 'admit' and met_only(not live and old or nil) }) end
if live and actual and #actual ~= #old[R_LEGS] then refused('actual_count') end
if attempt <= ended then refused('attempt') end
if old and not live then return answer({ { 'ended', old[R_STATE] } }) end

local ending = live and { legs = old[R_LEGS], actual = actual, landed = landed }
local plan = plan_all(legs, profile, ending)
if not plan then return answer({ { 'recalendar' } }) end
if #plan.blocks > 0 then
  local denial = denial_of(plan)
  if not live then count_denied(plan) end
  return answer({ denial })
end
probe()
local said = met_only(nil)
if live then
  local posts, overrun, charges = effects(old[R_LEGS], found, { kind = MOVED, actual = actual, landed = landed, onto = plan.legs })
  free(old, found, posts)
  bury(KEYS[7], id, ended, old, REBOOKED, posts)
  if has_entry then journal(id, ended, 0, 4, old[R_ADMITTED], charges, ARGV[3]) end
  said = claimed(1, overrun, charges, old[R_ADMITTED])
else
  alarm('unknown_claims', 1)
end
take(KEYS[6], id, attempt, life, profile, ARGV[2], plan)
tick()
store()
return answer({ admitted(plan), said })
