-- reserve: hold a call's demand on every leg, or on none (L1); answer a repeat as the first time (L2).
-- KEYS: the reservation, then subjects. Arguments: id, attempt, life, profile, legs; context.

local id, attempt, life, profile, legs = unpack(ARGS, 1, 5)
asked_legs = legs
for _, leg in ipairs(legs) do want(KEYS[leg[L_KEY]], leg[L_NAME]) end
fetch()
local known = repeated(reservation(KEYS[6]), legs)
if known then return answer(known) end
local plan = plan_all(legs, profile)
if not plan then return answer({ 'recalendar' }) end
if #plan.blocks > 0 then
  local denial = denial_of(plan)
  count_denied(plan)
  return answer(denial)
end
probe()
take(KEYS[6], id, attempt, life, profile, ARGV[2], plan)
tick()
store()
return answer(admitted(plan))
