-- begin: the shard belongs to an epoch and to the server that answers, and is closed.
-- Arguments: epoch, whether it was cleared, the epoch and the last write that it was judged by.
-- Answers 1, or 0 if a newer epoch is there, or this one of another server, or not what was judged.

local asked, cleared, known, last = unpack(from_msgpack(ARGV[1]), 1, 4)
local server = ARGV[#ARGV]
if epoch > asked or epoch == asked and run ~= server then return answer(0) end
if epoch < asked then
  if cleared == 0 and (epoch ~= known or seen < last) then return answer(0) end
  call('HSET', BOOK, 's', pack('<dB', asked, 1) .. server)
end
return answer(1)
