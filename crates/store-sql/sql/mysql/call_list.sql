-- Every entry of one page of calls: those of tenant ?1 admitted from ?2 up to but not including ?3, after (?4, ?5), at most
-- ?6 calls. A call stands where its first entry stands; entries that adjust (5) are no call of their own.
SELECT entry.*, found.admitted_at AS call_admitted_at, found.place AS call_place
FROM (
    SELECT one.reservation, one.admitted_at, one.place FROM entry AS one
    WHERE one.side = 0 AND one.tenant = ?1 AND one.admitted_at >= ?2 AND one.admitted_at < ?3
        AND (one.admitted_at > ?4 OR (one.admitted_at = ?4 AND one.place > ?5))
        AND one.origin <> 5
        AND NOT EXISTS (
            SELECT 1 FROM entry AS earlier
            WHERE earlier.reservation = one.reservation AND earlier.side = 0 AND earlier.origin <> 5
                AND (earlier.attempt, earlier.seq, earlier.unbooked) < (one.attempt, one.seq, one.unbooked)
        )
    ORDER BY one.admitted_at, one.place
    LIMIT ?6
) AS found
STRAIGHT_JOIN entry ON entry.reservation = found.reservation AND entry.side = 0
ORDER BY found.admitted_at, found.place, entry.attempt, entry.seq, entry.unbooked
