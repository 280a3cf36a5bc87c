-- state: what the shard says of itself: epoch, whether this server opened it, whether it is being rebuilt, its last write.
return { tonumber(meta[1] or 0), now, { tonumber(meta[1] or 0), meta[4] == ARGV[#ARGV] and 1 or 0, meta[5] and 1 or 0, seen } }
