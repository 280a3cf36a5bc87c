SELECT 1 AS known FROM entry_key WHERE reservation = ?1 LIMIT 1
