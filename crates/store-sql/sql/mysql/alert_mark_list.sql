-- What is known of the thresholds of tenant ?1 whose time is not over at ?2, after (?3, ?4, ?5), at most ?6.
SELECT tenant, account, period, threshold, turn, crossed FROM alert_mark
WHERE tenant = ?1 AND until > ?2
    AND account >= ?3 AND (account > ?3 OR period > ?4 OR (period = ?4 AND threshold > ?5))
ORDER BY account, period, threshold
LIMIT ?6
