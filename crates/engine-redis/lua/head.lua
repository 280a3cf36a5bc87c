-- The keys of every verb, and what it was told of its shard, once that is read.
local call = redis.call
local BOOK, DUE = KEYS[1], KEYS[2]
local told
