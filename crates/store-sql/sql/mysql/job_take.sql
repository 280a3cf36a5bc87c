-- Takes the lease of job ?1 for gateway ?2 for ?3 milliseconds, if nobody has it.
INSERT INTO job_lease (job, holder, until)
SELECT ?1, ?2, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) + ?3 FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM job_lease WHERE job = ?1)
