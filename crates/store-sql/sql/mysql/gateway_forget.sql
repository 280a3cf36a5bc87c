-- Those that were not seen for ?1 milliseconds, or so far ahead by a clock that has stepped back.
DELETE FROM gateway WHERE seen_at <= CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) - ?1
    OR seen_at > CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + ?1
