-- How many were seen within ?1 milliseconds; not those of a clock that has stepped back since.
SELECT count(*) FROM gateway WHERE seen_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
    AND seen_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?1
