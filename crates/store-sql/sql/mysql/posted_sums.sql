-- What was posted per account and period, for periods that start at or after ?1 and for lifetime ones (0),
-- after (?2, ?3, ?4), at most ?5.
SELECT subject, account, period, amount FROM posted
WHERE (period >= ?1 OR period = 0)
    AND subject >= ?2 AND (subject > ?2 OR account > ?3 OR (account = ?3 AND period > ?4))
ORDER BY subject, account, period
LIMIT ?5
