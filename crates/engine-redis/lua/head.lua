-- The keys of every verb, and what it was told of its shard, once that is read.
local call = redis.call
local BOOK, DUE = KEYS[1], KEYS[2]
-- Fields that a quick way has read already: `told` has their values behind the clock and the state.
local told, named
