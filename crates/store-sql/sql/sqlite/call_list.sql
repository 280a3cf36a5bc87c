-- Every entry of one page of calls: those of tenant ?1 admitted from ?2 up to but not including ?3, after (?4, ?5), at most
-- ?6 calls. A call stands where its first entry stands; entries that adjust (5) are no call of their own.
SELECT entry.*, call.admitted_at AS call_admitted_at, call.place AS call_place
FROM (
    SELECT reservation, admitted_at, place FROM entry AS first
    WHERE side = 0 AND tenant = ?1 AND admitted_at >= ?2 AND admitted_at < ?3 AND (admitted_at, place) > (?4, ?5)
        AND origin <> 5
        AND NOT EXISTS (
            SELECT 1 FROM entry AS earlier
            WHERE earlier.reservation = first.reservation AND earlier.side = 0 AND earlier.origin <> 5
                AND (earlier.attempt, earlier.seq, earlier.unbooked) < (first.attempt, first.seq, first.unbooked)
        )
    ORDER BY admitted_at, place
    LIMIT ?6
) AS call
CROSS JOIN entry ON entry.reservation = call.reservation AND entry.side = 0
ORDER BY call.admitted_at, call.place, entry.attempt, entry.seq, entry.unbooked
