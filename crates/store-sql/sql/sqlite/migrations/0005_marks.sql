-- By what else an object is found, and the history of limits by tenant.

-- A mark is one object's.
CREATE TABLE object_mark (
    mark TEXT NOT NULL PRIMARY KEY CHECK (length(CAST(mark AS BLOB)) BETWEEN 1 AND 128),
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 7),
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    id TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX object_mark_by_object ON object_mark (kind, tenant, project, id);

-- Keys are found by their ids and by the hashes of their secrets, which are written in small letters.
REPLACE INTO object_mark (mark, kind, tenant, project, id)
SELECT 'key ' || id, kind, tenant, project, id FROM object WHERE kind = 3 AND length(CAST(id AS BLOB)) <= 124;
REPLACE INTO object_mark (mark, kind, tenant, project, id)
SELECT lower(hash), kind, tenant, project, id
FROM (
    SELECT CASE WHEN json_valid(document) THEN document ->> '$.hash' END AS hash, kind, tenant, project, id
    FROM object WHERE kind = 3
)
WHERE hash LIKE 'blake3:%' AND length(CAST(hash AS BLOB)) <= 128;
REPLACE INTO object_mark (mark, kind, tenant, project, id)
SELECT lower(hash), kind, tenant, project, id
FROM (
    SELECT CASE WHEN json_valid(document) THEN document ->> '$.previous.hash' END AS hash, kind, tenant, project, id
    FROM object WHERE kind = 3
)
WHERE hash LIKE 'blake3:%' AND length(CAST(hash AS BLOB)) <= 128;

-- Whose a limit is; empty where it is nobody's, and for what was written before this layout.
CREATE TABLE limit_history_by_tenant (
    tenant TEXT NOT NULL,
    limit_name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    seen_at INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    definition TEXT NOT NULL,
    PRIMARY KEY (tenant, limit_name, version)
) STRICT, WITHOUT ROWID;
INSERT INTO limit_history_by_tenant (tenant, limit_name, version, seen_at, digest, definition)
SELECT '', limit_name, version, seen_at, digest, definition FROM limit_history;
DROP TABLE limit_history;
ALTER TABLE limit_history_by_tenant RENAME TO limit_history;
