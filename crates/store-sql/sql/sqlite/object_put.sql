INSERT INTO object (kind, tenant, project, id, version, document, created_at, changed_at)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6,
    CAST(unixepoch('subsec') * 1000 AS INTEGER), CAST(unixepoch('subsec') * 1000 AS INTEGER)
)
ON CONFLICT (kind, tenant, project, id) DO UPDATE SET
    version = excluded.version, document = excluded.document, changed_at = excluded.changed_at
