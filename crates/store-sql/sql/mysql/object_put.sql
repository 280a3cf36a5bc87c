INSERT INTO object (kind, tenant, project, id, version, document, created_at, changed_at)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6,
    CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED), CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)
)
ON DUPLICATE KEY UPDATE version = VALUES(version), document = VALUES(document), changed_at = VALUES(changed_at)
