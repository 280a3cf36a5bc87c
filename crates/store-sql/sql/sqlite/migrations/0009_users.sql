-- Kind 8 is an end user of a tenant. What kinds there are is known to who writes them: tables that only know numbers need not
-- be made anew for the next one.

CREATE TABLE object_next (
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 255),
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    id TEXT NOT NULL,
    -- The change that wrote it.
    version INTEGER NOT NULL,
    document TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (kind, tenant, project, id)
) STRICT, WITHOUT ROWID;
INSERT INTO object_next (kind, tenant, project, id, version, document, created_at, changed_at)
SELECT kind, tenant, project, id, version, document, created_at, changed_at FROM object;
DROP TABLE object;
ALTER TABLE object_next RENAME TO object;

CREATE TABLE change_next (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 255),
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    id TEXT NOT NULL,
    -- Documents; no value where the object was not there, or is there no more.
    before TEXT,
    after TEXT
) STRICT;
INSERT INTO change_next (number, at, who, kind, tenant, project, id, before, after)
SELECT number, at, who, kind, tenant, project, id, before, after FROM change;
DROP TABLE change;
ALTER TABLE change_next RENAME TO change;
CREATE INDEX change_by_tenant ON change (tenant, number);
