-- begin: the shard belongs to an epoch and to the server that answers, and is closed. Arguments: epoch.
-- Answers 1, or 0 if a newer epoch is there or this one of another server.

local epoch, run = ARGS[1], ARGV[#ARGV]
local known = tonumber(meta[1] or 0)
if known > epoch or known == epoch and meta[4] ~= run then return answer(0) end
if known < epoch then call('HSET', META, 'epoch', whole(epoch), 'run', run, 'closed', '1') end
return answer(1)
