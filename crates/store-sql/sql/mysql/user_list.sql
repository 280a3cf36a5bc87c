-- End users of tenant ?1 with calls admitted from ?2 up to but not including ?3, after ?4, at most ?5.
SELECT DISTINCT end_user FROM journal
WHERE side = 0 AND tenant = ?1 AND admitted_at >= ?2 AND admitted_at < ?3 AND end_user > CAST(?4 AS BINARY)
ORDER BY end_user
LIMIT ?5
