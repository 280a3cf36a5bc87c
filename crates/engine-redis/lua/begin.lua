-- begin: the shard belongs to an epoch and to the server that answers, and is closed. Arguments: epoch.
-- Answers 1, or 0 if a newer epoch is there or this one of another server.

local asked, server = from_msgpack(ARGV[1]), ARGV[#ARGV]
if epoch > asked or epoch == asked and run ~= server then return answer(0) end
if epoch < asked then call('HSET', BOOK, 's', pack('<dB', asked, 1) .. server) end
return answer(1)
