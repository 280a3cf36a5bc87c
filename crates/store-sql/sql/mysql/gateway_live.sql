-- How many were seen within ?1 milliseconds; not those of a clock that has stepped back since.
SELECT COUNT(*) AS live FROM gateway WHERE seen_at > CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) - ?1
    AND seen_at <= CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + ?1
