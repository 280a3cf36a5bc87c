-- One page of the entries that ended from ?1 up to but not including ?2, after (?3, ?4).
SELECT * FROM entry_row
WHERE ended_at >= ?1 AND ended_at < ?2 AND (ended_at, place) > (?3, ?4)
ORDER BY ended_at, place
LIMIT ?5
