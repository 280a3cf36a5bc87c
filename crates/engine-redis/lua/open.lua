-- open: the rebuild of an epoch is done. Arguments: epoch. Answers 1, or 0 if another epoch is there.

if tonumber(meta[1] or 0) ~= ARGS[1] or meta[4] ~= ARGV[#ARGV] then return answer(0) end
if meta[5] then call('HDEL', META, 'closed') end
return answer(1)
