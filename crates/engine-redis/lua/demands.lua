-- demands: what legs would ask for now, by what was learned. Arguments: legs. Writes nothing.

local legs, asked = legs_of(from_msgpack(ARGV[1])), {}
with_track()
for _, leg in ipairs(legs) do want(leg[L_ACCOUNT]) end
fetch()
for index, leg in ipairs(legs) do
  local account, asks = want(leg[L_ACCOUNT]), asks_of(leg[L_LIMITS])
  local busy = account.row and account.row[KIND] == FORECAST and track_busy(account)
  local most = leg[L_KIND] == FORECAST and usable(asks.ceiling, busy and spares(FORECAST, leg[L_MEASURE], leg[L_P2])) or asks.soft
  local output = shrink(leg, min(expected_of(leg), leg[L_CAP]), most)
  local expected = amount_of(leg[L_BASE], leg[L_PER], output)
  asked[index] = asks.worst and max(expected, leg[L_WORST]) or expected
end
return answer(asked)
