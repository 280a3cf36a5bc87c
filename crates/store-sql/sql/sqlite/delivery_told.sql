-- A try to deliver event ?2 to webhook ?1 left it in state ?3, due at ?4.
UPDATE webhook_delivery SET state = ?3, due_at = ?4, tries = tries + 1
WHERE webhook = ?1 AND id = ?2 AND state = 0
