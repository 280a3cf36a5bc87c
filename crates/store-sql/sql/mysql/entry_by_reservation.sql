SELECT entry_row.* FROM entry_key
STRAIGHT_JOIN entry_row ON entry_row.place = entry_key.place AND entry_row.ended_at = entry_key.ended_at
WHERE entry_key.reservation = ?1
ORDER BY entry_key.side, entry_key.attempt, entry_key.seq, entry_key.unbooked
