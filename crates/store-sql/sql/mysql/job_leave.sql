DELETE FROM job_lease WHERE job = ?1 AND holder = ?2
