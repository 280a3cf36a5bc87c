-- Event ?2 is to be delivered to webhook ?1 from ?4 on: 0 waits, 1 is delivered, 2 is given up.
INSERT INTO webhook_delivery (webhook, id, body, created_at, due_at, tries, state)
VALUES (?1, ?2, ?3, ?4, ?4, 0, 0)
