-- survey: live reservations and estimators as they are kept, for people. KEYS: reservations. Arguments: estimators.
-- Writes nothing.

local holds, learned = {}, {}
for index = 3, #KEYS do
  local row = reservation(KEYS[index])
  if row and row[R_STATE] == LIVE_NOW then
    local legs = {}
    for at, leg in ipairs(row[R_LEGS]) do
      legs[at] = { leg[H_ACCOUNT], leg[H_PLACE], leg[H_HELD], leg[H_DECIDED], leg[H_OUTPUT] }
    end
    holds[#holds + 1] = { index - 3, max(now - row[R_ADMITTED], 0), max(row[R_DUE] - steady, 0), row[R_SENT], row[R_CONTEXT], legs }
  end
end
for _, id in ipairs(from_msgpack(ARGV[1])) do
  local row = estimate_of(id)
  if row then
    learned[#learned + 1] = { id, row[E_KIND], row[E_N], row[E_M], #row[E_SAMPLES], max(steady - row[E_USED], 0) }
  end
end
return answer({ holds, learned })
