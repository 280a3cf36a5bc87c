-- rebook: end attempt n and decide attempt n + 1 in one step (L18). A denial, a recalendar or a conflict writes nothing.
-- KEYS: attempt n + 1, attempt n. Arguments: attempt n + 1, member, life, profile, legs, attempt n, actual per leg of n or
-- false, landed, whether there is an entry; the claim of n, context, entry.

local attempt, member, life, profile, form, ended, actual, landed, has_entry = unpack(from_msgpack(ARGV[1]), 1, 9)
local legs = legs_of(form)
asked_legs = legs
local old = reservation(KEYS[4])
local live = old and old[R_STATE] == LIVE_NOW
local found = live and accounts_of(old[R_LEGS]) or {}
for _, leg in ipairs(legs) do want(leg[L_ACCOUNT]) end
fetch()
local known = attempt > ended and repeated(reservation(KEYS[3]), legs)
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
probe(true)
local said = met_only(nil)
if live then
  local posts, overrun, charges = effects(old[R_LEGS], found, { kind = MOVED, actual = actual, landed = landed, onto = plan.legs })
  free(old, found, posts)
  bury(KEYS[4], old, REBOOKED, posts)
  if has_entry then journal(ARGV[2], 0, 4, old[R_ADMITTED], charges, ARGV[4]) end
  said = claimed(1, overrun, charges, old[R_ADMITTED])
else
  alarm('unknown_claims', 1)
end
take(KEYS[3], member, life, profile, ARGV[3], plan)
tick()
store()
return answer({ admitted(plan), said })
