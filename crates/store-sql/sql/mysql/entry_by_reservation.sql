SELECT * FROM entry WHERE reservation = ?1 ORDER BY side, attempt, seq, unbooked
