-- At most ?3 rows that ended before ?1, at places up to ?2.
DELETE FROM entry_row WHERE place IN (SELECT place FROM entry_row WHERE ended_at < ?1 AND place <= ?2 ORDER BY ended_at LIMIT ?3)
