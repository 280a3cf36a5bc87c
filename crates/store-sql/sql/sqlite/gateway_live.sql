-- How many were seen within ?1 milliseconds.
SELECT count(*) FROM gateway WHERE seen_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
