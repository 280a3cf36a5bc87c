-- state: what the shard says of itself: epoch, whether this server opened it, whether it is being rebuilt, its last write.
return answer({ epoch, run == ARGV[#ARGV] and 1 or 0, closed, seen })
