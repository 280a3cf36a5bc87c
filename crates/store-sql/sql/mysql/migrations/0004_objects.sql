-- What operators define, as documents, and every change of them. Instants are milliseconds of this database's clock.

-- Kinds: 0 plan, 1 tenant, 2 project, 3 key, 4 service, 5 operator, 6 upstream, 7 model. Ids that a kind does not have are empty.
CREATE TABLE IF NOT EXISTS object (
    kind SMALLINT NOT NULL,
    tenant VARBINARY(512) NOT NULL,
    project VARBINARY(512) NOT NULL,
    id VARBINARY(512) NOT NULL,
    -- The change that wrote it.
    version BIGINT NOT NULL,
    document MEDIUMTEXT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (kind, tenant, project, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS `change` (
    number BIGINT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    kind SMALLINT NOT NULL,
    tenant VARBINARY(512) NOT NULL,
    project VARBINARY(512) NOT NULL,
    id VARBINARY(512) NOT NULL,
    -- Documents; no value where the object was not there, or is there no more.
    `before` MEDIUMTEXT,
    after MEDIUMTEXT,
    KEY change_by_tenant (tenant, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
