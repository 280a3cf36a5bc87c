-- Every entry of one page of calls: those of tenant ?1 admitted from ?2 up to but not including ?3, after (?4, ?5), at most
-- ?6 calls. A call stands where its first entry stands; entries that adjust (5) are no call of their own. One whose first
-- entry's row is gone is left out.
SELECT entry_row.*, call.admitted_at AS call_admitted_at, call.place AS call_place
FROM (
    SELECT reservation, admitted_at, place FROM entry_row AS first
    WHERE side = 0 AND tenant = ?1 AND admitted_at >= ?2 AND admitted_at < ?3 AND (admitted_at, place) > (?4, ?5)
        AND origin <> 5
        AND NOT EXISTS (
            SELECT 1 FROM entry_key AS earlier LEFT JOIN entry_row AS that ON that.place = earlier.place
            WHERE earlier.reservation = first.reservation AND earlier.side = 0
                AND (earlier.attempt, earlier.seq, earlier.unbooked) < (first.attempt, first.seq, first.unbooked)
                AND (that.origin IS NULL OR that.origin <> 5)
        )
    ORDER BY admitted_at, place
    LIMIT ?6
) AS call
CROSS JOIN entry_key ON entry_key.reservation = call.reservation AND entry_key.side = 0
CROSS JOIN entry_row ON entry_row.place = entry_key.place
ORDER BY call.admitted_at, call.place, entry_row.attempt, entry_row.seq, entry_row.unbooked
