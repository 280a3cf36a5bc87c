SELECT entry_row.* FROM entry_key CROSS JOIN entry_row ON entry_row.place = entry_key.place
WHERE entry_key.reservation = ?1
ORDER BY entry_key.side, entry_key.attempt, entry_key.seq, entry_key.unbooked
