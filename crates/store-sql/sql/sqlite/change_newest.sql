SELECT coalesce(max(number), 0) AS number, CAST(unixepoch('subsec') * 1000 AS INTEGER) AS at FROM change
