-- open: the rebuild of an epoch is done. Arguments: epoch. Answers 1, or 0 if another epoch is there.

if epoch ~= from_msgpack(ARGV[1]) or run ~= ARGV[#ARGV] then return answer(0) end
if closed == 1 then call('HSET', BOOK, 's', pack('<dB', epoch, 0) .. run) end
return answer(1)
