-- Those that were not seen for ?1 milliseconds.
DELETE FROM gateway WHERE seen_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?1
