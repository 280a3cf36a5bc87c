-- clear: forget accounts and live reservations of a shard that is to be rebuilt; a step at a time.
-- KEYS: reservations, then subjects. Arguments: epoch, members of the due set, subjects. Answers what is left, or -1 if the
-- shard has that epoch already.

local epoch, members, subjects = unpack(ARGS, 1, 3)
if tonumber(meta[1] or 0) >= epoch then return answer(-1) end
probe()
for index = 6, #KEYS do call('DEL', KEYS[index]) end
if #members > 0 then call('ZREM', DUE, unpack(members)) end
if #subjects > 0 then call('SREM', SUBJECTS, unpack(subjects)) end
return answer(call('ZCARD', DUE) + call('SCARD', SUBJECTS))
