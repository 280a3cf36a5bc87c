-- What was posted per account and period, for periods that start at or after ?1 and for lifetime ones (0),
-- after (?2, ?3, ?4), at most ?5.
SELECT subject, account, period, sum(amount) AS amount FROM posted
WHERE (period >= ?1 OR period = 0) AND (subject, account, period) > (?2, ?3, ?4)
GROUP BY subject, account, period
ORDER BY subject, account, period
LIMIT ?5
