-- Frees the lease of job ?1 where gateway ?2 may take or keep it for ?3 milliseconds. One that would last longer than any
-- can is of a clock that has stepped back.
DELETE FROM job_lease
WHERE job = ?1 AND (
    holder = ?2 OR until <= CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)
    OR until > CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + ?3
)
