-- Every entry of one page of calls: those of tenant ?1 admitted from ?2 up to but not including ?3, after (?4, ?5), at most
-- ?6 calls. A call stands where its first entry stands; entries that adjust (5) are no call of their own. One whose first
-- entry's row is gone is left out.
SELECT entry_row.*, found.admitted_at AS call_admitted_at, found.place AS call_place
FROM (
    SELECT one.reservation, one.admitted_at, one.place FROM entry_row AS one
    WHERE one.side = 0 AND one.tenant = ?1 AND one.admitted_at >= ?2 AND one.admitted_at < ?3
        AND (one.admitted_at > ?4 OR (one.admitted_at = ?4 AND one.place > ?5))
        AND one.origin <> 5
        AND NOT EXISTS (
            SELECT 1 FROM entry_key AS earlier
            LEFT JOIN entry_row AS that ON that.place = earlier.place AND that.ended_at = earlier.ended_at
            WHERE earlier.reservation = one.reservation AND earlier.side = 0
                AND (earlier.attempt, earlier.seq, earlier.unbooked) < (one.attempt, one.seq, one.unbooked)
                AND (that.origin IS NULL OR that.origin <> 5)
        )
    ORDER BY one.admitted_at, one.place
    LIMIT ?6
) AS found
STRAIGHT_JOIN entry_key ON entry_key.reservation = found.reservation AND entry_key.side = 0
STRAIGHT_JOIN entry_row ON entry_row.place = entry_key.place AND entry_row.ended_at = entry_key.ended_at
ORDER BY found.admitted_at, found.place, entry_row.attempt, entry_row.seq, entry_row.unbooked
