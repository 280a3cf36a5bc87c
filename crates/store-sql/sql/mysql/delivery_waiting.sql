-- How many deliveries wait.
SELECT COUNT(*) AS waiting FROM webhook_delivery WHERE state = 0
