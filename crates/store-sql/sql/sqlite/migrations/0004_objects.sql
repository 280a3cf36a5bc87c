-- What operators define, as documents, and every change of them. Instants are milliseconds of this database's clock.

-- Kinds: 0 plan, 1 tenant, 2 project, 3 key, 4 service, 5 operator, 6 upstream, 7 model. Ids that a kind does not have are empty.
CREATE TABLE object (
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 7),
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

CREATE TABLE change (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    kind INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 7),
    tenant TEXT NOT NULL,
    project TEXT NOT NULL,
    id TEXT NOT NULL,
    -- Documents; no value where the object was not there, or is there no more.
    before TEXT,
    after TEXT
) STRICT;
CREATE INDEX change_by_tenant ON change (tenant, number);
