DELETE FROM gateway WHERE id = ?1
