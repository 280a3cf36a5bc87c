-- Whose accounts booked entries posted to, after place ?1, at most ?2.
SELECT place, side, tenant, pool, ended_at, posted FROM entry_row
WHERE place > ?1 AND unbooked = 0
ORDER BY place
LIMIT ?2
