-- Forgets deliveries from before ?1.
DELETE FROM webhook_delivery WHERE created_at <= ?1
