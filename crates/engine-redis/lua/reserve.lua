-- reserve: hold a call's demand on every leg, or on none (L1); answer a repeat as the first time (L2).
-- KEYS: the reservation. Arguments: the quick form, context, and member, life, profile, legs.

local member, life, profile, form = unpack(from_msgpack(ARGV[3]), 1, 4)
local legs = legs_of(form)
asked_legs = legs
for _, leg in ipairs(legs) do want(leg[L_ACCOUNT]) end
fetch()
local known = repeated(reservation(KEYS[3]), legs)
if known then return answer(known) end
local plan = plan_all(legs, profile)
if not plan then return answer({ 'recalendar' }) end
if #plan.blocks > 0 then
  local denial = denial_of(plan)
  count_denied(plan)
  return answer(denial)
end
probe()
take(KEYS[3], member, life, profile, ARGV[2], plan)
tick()
store()
return answer(admitted(plan))
