-- The keys of the ?1 entries that were inserted last.
SELECT reservation, side, attempt, seq, unbooked FROM entry ORDER BY place DESC LIMIT ?1
