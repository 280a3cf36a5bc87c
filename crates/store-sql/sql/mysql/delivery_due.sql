-- What is to be delivered to webhook ?1 at ?2, at most ?3 of it.
SELECT webhook, id, body, created_at, tries FROM webhook_delivery
WHERE webhook = ?1 AND state = 0 AND due_at <= ?2 ORDER BY due_at, id LIMIT ?3
