INSERT INTO `change` (number, at, who, kind, tenant, project, id, `before`, after)
VALUES (?1, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED), ?2, ?3, ?4, ?5, ?6, ?7, ?8)
