SELECT COALESCE(MAX(number), 0) AS number FROM `change`
