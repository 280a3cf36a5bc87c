-- Takes the lease of job ?1 for gateway ?2 for ?3 milliseconds, if nobody has it.
INSERT INTO job_lease (job, holder, until)
SELECT ?1, ?2, CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?3
WHERE NOT EXISTS (SELECT 1 FROM job_lease WHERE job = ?1)
