-- Daily totals from day ?1 to day ?2 of side ?3; an empty tenant, pool or model means all.
SELECT * FROM total
WHERE day BETWEEN ?1 AND ?2 AND side = ?3
    AND (LENGTH(?4) = 0 OR tenant = ?4) AND (LENGTH(?5) = 0 OR pool = ?5) AND (LENGTH(?6) = 0 OR model = ?6)
ORDER BY day, tenant, pool, model
