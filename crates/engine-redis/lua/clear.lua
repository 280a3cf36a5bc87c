-- clear: forget accounts and live reservations of a shard that is to be rebuilt; a step at a time.
-- KEYS: reservations. Arguments: epoch, members of the due set, fields of the book. Answers how many reservations are left, or
-- -1 if the shard has that epoch already.

local asked, members, fields = unpack(from_msgpack(ARGV[1]), 1, 3)
if epoch >= asked then return answer(-1) end
probe()
for index = 3, #KEYS do call('DEL', KEYS[index]) end
if #members > 0 then call('ZREM', DUE, unpack(members)) end
if #fields > 0 then call('HDEL', BOOK, unpack(fields)) end
return answer(call('ZCARD', DUE))
